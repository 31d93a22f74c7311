"""The downlink: the desired state of each device, what it has acknowledged, and what is still to send."""
