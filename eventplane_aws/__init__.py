"""What functions, commands and the client library share of AWS: adapters to the core's ports."""
