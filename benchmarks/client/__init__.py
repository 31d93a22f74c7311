"""What the client library costs: put and get over each backend, in each mode, and its filter."""
