"""What services on the device ask the forwarder on control topics, and its answers."""
