"""The forwarder measured against Mosquitto's own bridge, on one machine and in one run."""
