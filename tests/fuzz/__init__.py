"""Everything that reads bytes from outside, against bytes that nobody foresaw."""

SLOW_S = 5
"""Longer than this no reader may take for one input, seconds."""
