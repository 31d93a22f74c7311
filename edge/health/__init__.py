"""What the device says about itself: health, metrics, heartbeat, and its word to systemd."""
