"""A protocol that a package adds, as an environment uses it (docs/protocols.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from stacks.setting_error import EnvironmentSettingError

_URL: Final = re.compile(r"([a-z][a-z0-9]{1,19})://[A-Za-z0-9][A-Za-z0-9.-]*(:\d{1,5})?", re.ASCII)
_SECRET: Final = re.compile(r"[A-Za-z0-9/_+=.@-]{1,512}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ProtocolSettings:
    """Where the channels of the protocol lie, and what routers need to write to them.

    Args:
        package: the folder with the package, its `*.dist-info` and `requirements.txt` with hashes, seen from
            the checkout.
        url: `NAME://HOST:PORT`, where the routers reach it. They run outside of any VPC.
        secret: name of the secret in AWS Secrets Manager that the package reads its credentials from; its
            `EVENTPLANE_NAME_SECRET` is set to it. None: it needs none.
    """

    package: str
    url: str
    secret: str | None = None

    def __post_init__(self) -> None:
        if not _URL.fullmatch(self.url):
            # It is not repeated, since it may hold a password.
            raise EnvironmentSettingError("protocols", "has a url that is not NAME://HOST:PORT")
        if self.secret is not None and not _SECRET.fullmatch(self.secret):
            raise EnvironmentSettingError("protocols", f"has {self.secret!r}, no name of a secret")

    @property
    def name(self) -> str:
        """What contracts call the protocol: the scheme of its URLs."""
        return self.url.partition(":")[0]
