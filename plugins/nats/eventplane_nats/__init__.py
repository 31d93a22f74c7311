"""NATS JetStream for Event Plane: channels of cloud services as streams. docs/protocols.md is its guide.

The core knows nothing of it: it is found by the entry points in its metadata.
"""
