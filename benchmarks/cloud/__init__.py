"""What the cloud side can do: events a second, latency, cold starts, memory, in the local cloud."""
