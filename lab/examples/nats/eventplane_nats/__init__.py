"""NATS JetStream for Event Plane: channels of cloud services as streams (docs/how-to/protocols.md).

The core knows nothing of it: it is found by the entry points in its metadata.
"""
