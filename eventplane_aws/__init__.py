"""Adapters of the core's ports to AWS, for functions, commands and the client library."""
