"""The registry: the content of a contract in the shape of xRegistry 1.0 (core, endpoint, message, schema).

`build.build_registry` writes the entities of a contract as one document. `reference.md` beside it says where
it deviates from the specification.
"""
