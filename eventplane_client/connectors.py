"""What connects over each transport: the library's own, and those of other packages, by entry points."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Protocol

from eventplane.names import TRANSPORTS
from eventplane_client.client import Client
from eventplane_client.errors import ClientSettingsError
from eventplane_client.notices import Listener
from eventplane_client.settings import ClientSettings


class Connector(Protocol):
    """Makes a client of the settings: a `ports.Transport`, and what the participant has besides."""

    def __call__(self, settings: ClientSettings, address: str, on_notice: Listener, /) -> Client:
        """Connect to `address`, what follows the colon. Raises `ClientSettingsError`, `UnavailableError`."""


def connector_of(transport: str, own: Mapping[str, Connector]) -> tuple[Connector, str]:
    """Return what connects to `transport`, `NAME:ADDRESS`, and the address; load no other package.

    `own` are those of the library, by name. Raises `ClientSettingsError`.
    """
    name, separator, address = transport.partition(":")
    if separator and name in own:
        return own[name], address
    found = {each.value: each for each in entry_points(group=TRANSPORTS, name=name)}
    if not separator or not found:
        known = ", ".join(f"{each}:" for each in sorted({*own, *entry_points(group=TRANSPORTS).names}))
        raise ClientSettingsError(
            "transport",
            f"{transport!r} is not known",
            f"use NAME:ADDRESS with one of: {known}, or install the package that adds it",
        )
    if len(found) > 1:
        raise ClientSettingsError(
            "transport", f"several packages add {name}: {', '.join(found)}", "uninstall all but one"
        )
    (registered,) = found.values()
    try:
        connector: Connector = registered.load()
    except ImportError as error:
        package = registered.dist
        needed = (package.requires or [package.name]) if package else [name]
        remedy = f"pip install {shlex.join(needed)}"
        raise ClientSettingsError("transport", f"{name} cannot be loaded: {error}", remedy) from error
    return connector, address
