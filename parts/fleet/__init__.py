"""Registration of devices and rotation of their certificates, by the registry of the fleet."""
