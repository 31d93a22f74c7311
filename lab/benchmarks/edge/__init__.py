"""Measures the forwarder beside Mosquitto's own bridge, on one machine in one run."""
