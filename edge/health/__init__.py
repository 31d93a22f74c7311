"""The device's health: what is wrong with it, and the endpoint that reports it."""
