"""The presence monitor: which devices are there and well, and what is said of those that are not."""
