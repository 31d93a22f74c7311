"""Measure the way down to devices: updates a second, latency, coalescing, the reconciler."""
