"""Brings events to devices: what each shall have, what it has, and what to do about the difference."""
