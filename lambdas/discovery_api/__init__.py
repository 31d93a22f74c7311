"""The Discovery API: the registry of the contract in force, over HTTP."""
