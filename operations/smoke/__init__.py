"""A smoke test of a deployed environment: a throw-away device goes through all of it once, and is removed."""
