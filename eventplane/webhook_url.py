"""What the address of a webhook may be."""

from __future__ import annotations

import ipaddress
import re

from eventplane.uri import is_uri

_URL = re.compile(
    r"(?P<scheme>[a-z]+)://(?P<user>[^/?#@]*@)?(?P<host>\[[^\]]*\]|[^/?#:@]+)(?::(?P<port>[0-9]*))?"
    r"(?:[/?][^#]*)?(?P<fragment>#.*)?",
    re.IGNORECASE,
)
_HOST = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
)


def url_problem(url: str, *, is_emulated: bool) -> str | None:
    """Why events may not be posted to `url`, or None; it is not repeated, since it may hold a password.

    An emulated environment may use plain HTTP and any host: its endpoints run beside it.
    """
    parts = _URL.fullmatch(url)
    if not is_uri(url) or parts is None or not 0 < int(parts["port"] or 443) < 65_536:
        return "is no URL with a host"
    if parts["user"] is not None:
        return "carries credentials, which would stand in templates; requests are signed instead"
    if parts["fragment"]:
        return "has a fragment, which is never sent"
    scheme = parts["scheme"].lower()
    if is_emulated:
        return None if scheme in ("http", "https") else "is neither https:// nor http://"
    if scheme != "https":
        return "is not https://"
    return _host_problem(parts["host"].lower().strip("[]"))


def _host_problem(host: str) -> str | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        is_public = _HOST.fullmatch(host) is not None and not host.endswith(
            (".localhost", ".local", ".internal")
        )
        return None if is_public else "names a host that is not on the internet"
    return None if address.is_global else "is a private address; only an emulated environment may use one"
