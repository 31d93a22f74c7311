"""Tells devices what the cloud wants of them, when that has changed."""
