"""The home's broker: where Mosquitto's profile leads, and how DNS-SD announces and finds it."""
