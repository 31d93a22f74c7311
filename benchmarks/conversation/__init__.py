"""Request and reply: on the device, from the cloud into a home, and from a home into the cloud."""
