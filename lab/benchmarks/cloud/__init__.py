"""Measure the cloud side: events a second, latency, cold starts, memory, in the local cloud."""
