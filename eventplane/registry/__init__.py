"""The registry: what a contract says, in the shape of xRegistry 1.0 (core, endpoint, message, schema).

`build_registry` makes the entities of a contract; `export` is all of them as one document, `look_up` answers
what an HTTP path asks for. What fits the specification and what does not is in docs/registry.md.
"""

from eventplane.contract.reach import Flow, Way, flows
from eventplane.registry.build import build_registry
from eventplane.registry.document import export
from eventplane.registry.errors import (
    ApiNotFoundError,
    BadFlagError,
    MethodNotAllowedError,
    NotFoundError,
    RegistryError,
    TooLargeError,
    UnavailableError,
)
from eventplane.registry.model import Group, Registry, Resource
from eventplane.registry.view import Answer, look_up

__all__ = [
    "Answer",
    "ApiNotFoundError",
    "BadFlagError",
    "Flow",
    "Group",
    "MethodNotAllowedError",
    "NotFoundError",
    "Registry",
    "RegistryError",
    "Resource",
    "TooLargeError",
    "UnavailableError",
    "Way",
    "build_registry",
    "export",
    "flows",
    "look_up",
]
