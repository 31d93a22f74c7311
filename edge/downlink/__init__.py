"""The device's end of the downlink: what the cloud desires is stored, delivered in the home, and answered."""
