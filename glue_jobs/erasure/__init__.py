"""The erasure: a person's events leave the archive, and it says what it removed."""
