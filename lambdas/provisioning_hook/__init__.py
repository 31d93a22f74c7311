"""Asked by AWS IoT before each registration of a device: was it made, and is it itself that asks."""
