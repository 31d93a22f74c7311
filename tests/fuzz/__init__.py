"""Everything that reads bytes from outside, against bytes that nobody foresaw."""
