"""The registry: the content of a contract in the shape of xRegistry 1.0 (core, endpoint, message, schema).

`build.build_registry` makes the entities of a contract, `document.export` writes all of them as one document.
docs/reference/registry.md says where it deviates from the specification.
"""
