"""What the way down to devices can do and costs: updates a second, latency, coalescing, the reconciler."""
