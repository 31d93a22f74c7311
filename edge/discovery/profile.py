"""Mosquitto's profile (mosquitto.conf), read for its listeners as Mosquitto 2.0 itself reads it.

Source: mosquitto.conf(5), and where that is silent what Mosquitto 2.0.11 does. Names that say nothing about
listeners are passed over, those of later versions included. That a profile is read does not mean that
Mosquitto takes it: it refuses more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from edge.discovery.errors import ProfileError

DEFAULT_PORT: Final = 1883

Included = Callable[[str], Iterable[tuple[str, str]]]
"""From the value of `include_dir` to name and text of each file in it. Raises `ProfileError`."""


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener. `port` 0 is a Unix socket, whose path is the `host`; `host` None is every address.

    `family` is what `socket_domain` says (ipv4, ipv6), `certificate` what it shows to those who come by TLS.
    """

    port: int
    host: str | None = None
    family: str | None = None
    interface: str | None = None
    protocol: str = "mqtt"
    certificate: str | None = None
    wants_certificate: bool = False
    shared_key: bool = False
    anonymous: bool = False

    def __str__(self) -> str:
        place = self.host or f"every {self.family + ' ' if self.family else ''}address"
        return f"listener {self.port} on {place}" if self.port else f"listener 0 at {place}"


@dataclass(slots=True)
class _Draft:
    """A listener as far as it has been read."""

    port: int = 0
    host: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    def is_on(self, name: str) -> bool:
        return self.options.get(name) == "true"


_FLAGS: Final = frozenset({
    "allow_anonymous", "per_listener_settings", "require_certificate", "use_identity_as_username",
    "use_subject_as_username", "use_username_as_clientid",
})  # fmt: skip
_WORDS: Final = frozenset({
    "bind_interface", "cafile", "capath", "certfile", "ciphers", "ciphers_tls1.3", "crlfile", "dhparamfile",
    "keyfile", "max_connections", "max_qos", "password_file", "protocol", "psk_file", "psk_hint",
    "socket_domain", "tls_engine",
})  # fmt: skip
"""What is kept of a listener: what the answer needs, and what makes the default one come into being."""

_FLAG_VALUES: Final = {"true": "true", "1": "true", "false": "false", "0": "false"}
_DEFAULTS: Final = {"max_connections": "-1", "max_qos": "2", "protocol": "mqtt"}
_OF_SECURITY: Final = frozenset({"allow_anonymous", "password_file", "psk_file"})
"""Of one listener only after `per_listener_settings true`."""
_OF_EVERYBODY: Final = _OF_SECURITY | {"per_listener_settings"}


def read_profile(text: str, name: str = "profile", included: Included = lambda _: ()) -> tuple[Listener, ...]:
    """The listeners of the profile `text`, which is called `name`. Raises `ProfileError`."""
    reading = _Reading(included)
    reading.read(name, text)
    return reading.listeners()


class _Reading:
    def __init__(self, included: Included) -> None:
        self._included = included
        self._default = _Draft()
        self._drafts: list[_Draft] = []
        self._everywhere: dict[str, str] = {}
        self._has_place = False

    def read(self, name: str, text: str, *, nested: bool = False) -> None:
        draft = self._default  # in each file anew
        for number, line in enumerate(text.split("\n"), 1):
            word, _, value = line.strip(" \r").partition(" ")
            value = value.strip()
            where = f"{name}:{number}"
            if word == "listener":
                draft = self._listener(value, where)
            elif word in ("port", "bind_address"):
                self._place(word, value, where)
            elif word == "include_dir" and not nested:
                for each, inner in self._included(_needed(word, value, where)):
                    self.read(each, inner, nested=True)
            elif word in _FLAGS or word in _WORDS:
                self._option(draft, word, _checked(word, value, where))

    def listeners(self) -> tuple[Listener, ...]:
        drafts = list(self._drafts)
        if not drafts or self._default_is_wanted():
            self._default.port = self._default.port or DEFAULT_PORT
            drafts.append(self._default)
        made = tuple(map(self._made, drafts))
        if self._has_place:
            return made
        # Nobody said where: Mosquitto then takes programs on the same machine, and whoever they are.
        anonymous = self._everywhere.get("allow_anonymous") != "false"
        return tuple(replace(each, host="localhost", anonymous=anonymous) for each in made)

    def _listener(self, value: str, where: str) -> _Draft:
        self._has_place = True
        port, host, *_ = [*_needed("listener", value, where).split(), ""]
        draft = _Draft(_port(port, where, lowest=0), None if host.startswith("#") else host or None)
        if draft.port == 0 and draft.host is None:
            raise ProfileError(
                where, "a listener at port 0 without a path", "name the Unix socket after the 0"
            )
        self._drafts.append(draft)
        return draft

    def _place(self, word: str, value: str, where: str) -> None:
        self._has_place = True
        if word == "port":
            self._default.port = _port(_needed(word, value, where), where, lowest=1)
        else:
            self._default.host = _needed(word, value, where).split()[0]

    def _option(self, draft: _Draft, word: str, value: str) -> None:
        each_its_own = word in _OF_SECURITY and self._everywhere.get("per_listener_settings") == "true"
        if each_its_own or word not in _OF_EVERYBODY:
            draft.options[word] = value
        else:
            self._everywhere[word] = value

    def _default_is_wanted(self) -> bool:
        default = self._default
        said = [
            name for name, value in default.options.items() if value not in ("false", _DEFAULTS.get(name))
        ]
        return bool(default.port or default.host or set(said) - {"allow_anonymous"})

    def _made(self, draft: _Draft) -> Listener:
        options = draft.options
        secure = "certfile" in options and "keyfile" in options  # one alone means nothing
        return Listener(
            draft.port,
            draft.host,
            options.get("socket_domain"),
            options.get("bind_interface"),
            options.get("protocol", "mqtt"),
            options["certfile"] if secure else None,
            secure and draft.is_on("require_certificate"),
            "psk_hint" in options,
            "true" in (options.get("allow_anonymous"), self._everywhere.get("allow_anonymous")),
        )


def _checked(word: str, value: str, where: str) -> str:
    value = _needed(word, value, where)
    if word in _FLAGS:
        flag = _FLAG_VALUES.get(value.split()[0])
        if flag is None:
            raise ProfileError(where, f"{value!r} is no value of {word}", "write true or false")
        return flag
    if word in ("protocol", "socket_domain"):
        value = value.split()[0]
    if word == "socket_domain" and value not in ("ipv4", "ipv6"):
        raise ProfileError(where, f"{value!r} is no socket_domain", "write ipv4 or ipv6")
    return value


def _needed(word: str, value: str, where: str) -> str:
    if not value:
        raise ProfileError(where, f"{word} has no value", "give it one, or remove the line")
    return value


def _port(text: str, where: str, *, lowest: int) -> int:
    """As C reads a number: the digits at the beginning, and 0 where there is none."""
    digits = re.match(r"[+-]?[0-9]{1,9}", text)
    port = int(digits[0]) if digits else 0
    if not lowest <= port <= 65_535:
        raise ProfileError(where, f"{text!r} is no port", "write a number from 1 to 65535")
    return port
