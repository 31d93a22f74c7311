"""Reads the listeners in Mosquitto's profile (mosquitto.conf) as Mosquitto 2.0 itself reads them.

Source: mosquitto.conf(5), and where that is silent the behaviour of Mosquitto 2.0.11. Options that do not
concern listeners are skipped, those of later versions included. What is refused here Mosquitto refuses too;
it checks more.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from pathlib import Path
from pwd import getpwnam
from typing import Final

from eventplane_mqtt.endpoint import DiscoveryError, is_host

DEFAULT_PORT: Final = 1883

_MOST_BYTES: Final = 1024 * 1024
"""A profile has a few KB; a larger file is some other file."""

_LIMITS: Final = {
    "max_inflight_messages": 20,
    "max_queued_messages": 1_000,
    "max_packet_size": 0,
    "message_size_limit": 0,
}
"""The limits that concern the forwarder, with Mosquitto's defaults."""

Included = Callable[[str], Iterable[tuple[str, str]]]
"""Returns name and text of each file in the value of `include_dir`. Raises `ProfileError`."""


class ProfileError(DiscoveryError):
    """Mosquitto's profile cannot be read; `subject` is the file, with the line if there is one."""


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener. `port` 0 is a Unix socket, whose path is the `host`; `host` None is every address.

    `family` is the value of `socket_domain` (ipv4, ipv6), `certificate` the file that TLS clients are shown,
    `where` the file and line, "" for Mosquitto's default.
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
    where: str = ""

    def __str__(self) -> str:
        where = self.host or f"every {self.family + ' ' if self.family else ''}address"
        return f"listener {self.port} on {where}" if self.port else f"listener 0 at {where}"

    def overlaps(self, other: Listener) -> bool:
        """Return whether both need the same address, which only one can have."""
        return 0 != self.port == other.port and any(
            one == another
            or ((":" in one) == (":" in another) and (is_every_address(one) or is_every_address(another)))
            for one, another in product(self.addresses(), other.addresses())
        )

    def addresses(self) -> Iterator[str]:
        """Yield the addresses. A name that only Mosquitto looks up counts as an address of IPv4."""
        known = {None: ("0.0.0.0", "::"), "lo": ("127.0.0.1", "::1"), "localhost": ("127.0.0.1",)}  # noqa: S104
        host = self.interface or self.host
        for each in known.get(host, (host or "",)):
            if self.family in (None, "ipv6" if ":" in each else "ipv4"):
                try:
                    yield socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, each))
                except OSError:
                    yield each


@dataclass(slots=True)
class _Draft:
    """A listener that is being read."""

    port: int = 0
    host: str | None = None
    where: str = ""
    options: dict[str, str] = field(default_factory=dict)


_FLAGS: Final = frozenset({
    "allow_anonymous", "per_listener_settings", "require_certificate", "use_identity_as_username",
    "use_subject_as_username", "use_username_as_clientid",
})  # fmt: skip
_WORDS: Final = frozenset({
    "bind_interface", "cafile", "capath", "certfile", "ciphers", "ciphers_tls1.3", "crlfile", "dhparamfile",
    "keyfile", "max_connections", "max_qos", "password_file", "protocol", "psk_file", "psk_hint",
    "socket_domain", "tls_engine",
})  # fmt: skip
"""The options that are kept: those that are needed here, and those that create the default listener."""

_FLAG_VALUES: Final = {"true": "true", "1": "true", "false": "false", "0": "false"}
_DEFAULTS: Final = {"max_connections": "-1", "max_qos": "2", "protocol": "mqtt"}
_SECURITY: Final = frozenset({"allow_anonymous", "password_file", "psk_file"})
"""Options of a single listener only after `per_listener_settings true`."""
_GLOBAL: Final = _SECURITY | {"per_listener_settings"}
_ACCESS: Final = _SECURITY | {
    "acl_file", "allow_zero_length_clientid", "auth_plugin", "auto_id_prefix", "global_plugin", "plugin",
    "plugin_load",
}  # fmt: skip
"""Options that decide who may do what: `per_listener_settings true` comes before them."""
_ONCE: Final = frozenset({"log_timestamp_format", "persistence_file", "persistence_location", "pid_file"})
_ONCE_A_LISTENER: Final = frozenset({
    "bind_interface", "cafile", "capath", "certfile", "ciphers", "ciphers_tls1.3", "crlfile", "dhparamfile",
    "keyfile", "psk_hint", "tls_engine",
})  # fmt: skip
"""Texts that Mosquitto refuses when they are set again."""
_OVERRIDDEN: Final = _ACCESS | _FLAGS | _WORDS | {"listener", "port", "bind_address"}
"""Options that another listener, or another rule of access, changes the meaning of."""
_ADDED_UP: Final = frozenset({"log_dest", "log_type"})
"""Options of which each line counts."""
_VALUES: Final = {"socket_domain": ("ipv4", "ipv6"), "protocol": ("mqtt", "mqttsn", "websockets")}


def read_profile(text: str, name: str = "profile", included: Included = lambda _: ()) -> tuple[Listener, ...]:
    """Return the listeners of the profile `text` with this `name`. Raises `ProfileError`."""
    reader = _ProfileReader(included)
    reader.read(name, text)
    return reader.listeners()


def load_profile(file: Path) -> tuple[Listener, ...]:
    """Return the listeners of the profile `file` and what it includes. Raises `ProfileError`."""
    return read_profile(_text(file), str(file), _included)


def is_every_address(host: str) -> bool:
    """Return whether `host` stands for all addresses of its family."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return not any(socket.inet_pton(family, host))
        except (OSError, ValueError):
            continue
    return False


def overridden(file: Path, added: Path) -> list[str]:
    """Return the lines of the profile `file` that `added`, which it includes, would override.

    These are listeners, who may do what, and what `added` sets to another value, also in files that Mosquitto
    2.0 ignores; or that `file` does not include `added`. Raises `ProfileError`.
    """
    lines = list(_lines(str(file), _text(file), _included, depth=3))
    ours: dict[str, set[str]] = {}
    for name, _, word, value in lines:
        if name == str(added):
            ours.setdefault(word, set()).add(_plain(value))
    if not ours:
        return [f"{file}: it does not include {added}"]

    def is_overridden(name: str, word: str, value: str) -> bool:
        if word in ours and word != "listener":
            return word not in _ADDED_UP and _plain(value) not in ours[word]
        return word in _OVERRIDDEN or (word == "include_dir" and name != str(file))

    return [
        f"{name}:{number}: {word} {value}"
        for name, number, word, value in lines
        if name != str(added) and is_overridden(name, word, value)
    ]


def limit_warnings(file: Path, most_in_flight: int, most_bytes: int, user: str = "mosquitto") -> list[str]:
    """Return what the profile `file` would cost a forwarder, each with a remedy.

    It recognises `most_in_flight` messages that come again, and reads packets of `most_bytes`; Mosquitto runs
    as `user`. Raises `ProfileError`.
    """
    reader = _ProfileReader(_included)
    reader.read(str(file), _text(file))
    limits = {**_LIMITS, **reader.limits}
    ids = None
    with suppress(KeyError):  # without its package nobody knows as whom it runs
        ids = getpwnam(user)[2:4]
    remedy = "chown mosquitto:mosquitto and chmod 600, which Mosquitto 2.0 and 2.1 both take"
    found = [
        f"{where}: {name} cannot be read by Mosquitto: {remedy}"
        for where, name in reader.files
        if ids and not _may_read(Path(name), *ids)
    ]
    if reader.expires_at:
        found.append(
            f"{reader.expires_at}: Mosquitto deletes sessions by the wall clock, whose step would delete the "
            "forwarder's with all that waits: remove persistent_client_expiration"
        )
    if not 0 < limits["max_inflight_messages"] <= most_in_flight:
        found.append(
            f"more than {most_in_flight:,} messages may be in flight, and more than that are not recognised "
            "when they come again: set max_inflight_messages 20000"
        )
    if limits["message_size_limit"]:
        found.append(
            "messages beyond message_size_limit are dropped without an error: set max_packet_size instead"
        )
    if not 0 < limits["max_packet_size"] <= most_bytes:
        found.append(
            f"packets of more than {most_bytes:,} bytes come through, of which the forwarder keeps only the "
            "beginning: set max_packet_size 1000000"
        )
    if limits["max_queued_messages"] <= _LIMITS["max_queued_messages"]:
        found.append(
            "messages that come while the forwarder restarts are dropped without an error: "
            "set max_queued_messages 200000"
        )
    return found


def _may_read(file: Path, user: int, group: int) -> bool:
    """Return whether a user may read `file`. 2.0 opens it as root but for reloads, 2.1 always as its user."""
    try:
        found = file.stat()
    except PermissionError:
        return True  # unknown
    except OSError:
        return False
    shift = 6 if found.st_uid == user else 3 if found.st_gid == group else 0
    return bool(found.st_mode >> shift & 4)


class _ProfileReader:
    def __init__(self, included: Included) -> None:
        self.limits: dict[str, int] = {}
        self.expires_at = ""
        self.files: list[tuple[str, str]] = []
        self._included = included
        self._default = _Draft()
        self._drafts: list[_Draft] = []
        self._global: dict[str, str] = {}
        self._has_address = False
        self._once: dict[str, str] = {}

    def read(self, name: str, text: str) -> None:
        drafts = {name: self._default}
        for file, number, word, value in _lines(name, text, self._included):
            draft = drafts.setdefault(file, self._default)  # reset in each file
            where = f"{file}:{number}"
            self._require_order(word, value, where)
            if word in ("password_file", "acl_file"):
                self.files.append((where, value))
            if word == "listener":
                drafts[file] = self._listener(value, where)
            elif word in ("port", "bind_address"):
                self._address(word, value, where)
            elif word == "persistent_client_expiration":
                self.expires_at = where
            elif word in _LIMITS:
                self.limits[word] = _number(value)
            elif word in _FLAGS or word in _WORDS:
                if word in _ONCE_A_LISTENER and word in draft.options:
                    raise ProfileError(where, f"{word} is set again", "remove one of the lines")
                self._option(draft, word, _checked(word, value, where))

    def listeners(self) -> tuple[Listener, ...]:
        drafts = list(self._drafts)
        if not drafts or self._has_default():
            self._default.port = self._default.port or DEFAULT_PORT
            drafts.append(self._default)
        listeners = tuple(map(self._listener_of, drafts))
        if self._has_address:
            for first, second in combinations(listeners, 2):
                if first.overlaps(second):
                    problem = f"{second} needs an address of {first} ({first.where})"
                    remedy = "remove one, or give it another port or address"
                    raise ProfileError(second.where, problem, remedy)
            return listeners
        # Without an address Mosquitto accepts all programs on the same machine, and only those.
        anonymous = self._global.get("allow_anonymous") != "false"
        return tuple(replace(each, host="localhost", anonymous=anonymous) for each in listeners)

    def _listener(self, value: str, where: str) -> _Draft:
        self._has_address = True
        port, host, *_ = [*_needed("listener", value, where).split(), ""]
        draft = _Draft(_port(port, where, lowest=0), None if host.startswith("#") else host or None, where)
        if draft.port and draft.host is not None:
            _require_host(draft.host, where)
        if draft.port == 0 and draft.host is None:
            problem = "a listener at port 0 without a path"
            raise ProfileError(where, problem, "name the Unix socket after the 0")
        self._drafts.append(draft)
        return draft

    def _address(self, word: str, value: str, where: str) -> None:
        self._has_address = True
        self._default.where = where
        if word == "port":
            self._default.port = _port(_needed(word, value, where), where, lowest=1)
        elif self._default.host is not None:
            raise ProfileError(where, "bind_address is set again", "remove one of the lines")
        else:
            self._default.host = _needed(word, value, where)
            _require_host(self._default.host, where)

    def _require_order(self, word: str, value: str, where: str) -> None:
        if word in _ONCE and (first := self._once.setdefault(word, where)) != where:
            raise ProfileError(where, f"{word} is set in {first} already", "remove one of the lines")
        if word in _ACCESS:
            self._once.setdefault("access", f"{where} ({word})")
        if word == "per_listener_settings" and "access" in self._once and _plain(value) == "true":
            problem = f"per_listener_settings is behind {self._once['access']}"
            raise ProfileError(where, problem, "put it before all listeners, passwords and rules")

    def _option(self, draft: _Draft, word: str, value: str) -> None:
        is_of_listener = word in _SECURITY and self._global.get("per_listener_settings") == "true"
        if is_of_listener or word not in _GLOBAL:
            draft.options[word] = value
        else:
            self._global[word] = value

    def _has_default(self) -> bool:
        default = self._default
        given = [
            name for name, value in default.options.items() if value not in ("false", _DEFAULTS.get(name))
        ]
        return bool(default.port or default.host or set(given) - {"allow_anonymous"})

    def _listener_of(self, draft: _Draft) -> Listener:
        options = draft.options
        secure = "certfile" in options and "keyfile" in options  # one alone has no effect
        return Listener(
            draft.port,
            draft.host,
            options.get("socket_domain"),
            options.get("bind_interface"),
            options.get("protocol", "mqtt"),
            options["certfile"] if secure else None,
            secure and options.get("require_certificate") == "true",
            "psk_hint" in options,
            "true" in (options.get("allow_anonymous"), self._global.get("allow_anonymous")),
            draft.where,
        )


def _checked(word: str, value: str, where: str) -> str:
    value = _needed(word, value, where)
    if word in _FLAGS:
        flag = _FLAG_VALUES.get(value.split()[0])
        if flag is None:
            raise ProfileError(where, f"{value!r} is no value of {word}", "write true or false")
        return flag
    if word in _VALUES:
        value = value.split()[0]
        if value not in _VALUES[word]:
            raise ProfileError(where, f"{value!r} is no {word}", f"write one of {', '.join(_VALUES[word])}")
    return value


def _plain(value: str) -> str:
    """Return a value without what follows it, flags in one spelling."""
    first = value.partition(" ")[0]
    return _FLAG_VALUES.get(first, first)


def _require_host(host: str, where: str) -> None:
    if not is_host(host):
        remedy = "write a host name or IP address, without scheme, port and brackets"
        raise ProfileError(where, f"{host!r} is no host", remedy)


def _needed(word: str, value: str, where: str) -> str:
    if not value:
        raise ProfileError(where, f"{word} has no value", "give it one, or remove the line")
    return value


def _port(text: str, where: str, *, lowest: int) -> int:
    port = _number(text)
    if not lowest <= port <= 65_535:
        raise ProfileError(where, f"{text!r} is no port", "write a number from 1 to 65535")
    return port


def _number(text: str) -> int:
    """Parse a number as C does: the digits at the beginning, 0 without any."""
    digits = re.match(r"[+-]?[0-9]{1,9}", text)
    return int(digits[0]) if digits else 0


def _lines(name: str, text: str, included: Included, depth: int = 1) -> Iterator[tuple[str, int, str, str]]:
    """Yield file, number, word and value of each line in the order in which Mosquitto reads them.

    An include at a `depth` beyond 1 is one that Mosquitto 2.0 ignores.
    """
    for number, line in enumerate(text.split("\n"), 1):
        word, _, value = line.strip(" \r").partition(" ")
        if not word or line.startswith("#"):
            continue
        value = value.strip()
        if not re.fullmatch(r"[\w.]+", word, re.ASCII):
            remedy = "begin comments with # at once, and separate a setting from its value with a space"
            raise ProfileError(f"{name}:{number}", f"{word!r} is no setting", remedy)
        yield name, number, word, value
        if word == "include_dir" and depth:
            for each, inner in included(_needed(word, value, f"{name}:{number}")):
                yield from _lines(each, inner, included, depth - 1)


def _included(folder: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file, in the order in which Mosquitto reads them."""
    path = Path(folder)
    if not path.is_absolute():
        raise ProfileError(
            folder,
            "include_dir is relative, and only Mosquitto knows to what",
            "make it absolute",
        )
    try:
        names = [each.name for each in path.iterdir()]
    except (OSError, ValueError) as error:
        raise ProfileError(folder, str(error), "name a directory that can be read") from error
    # By letters regardless of their case, capitals before equal small letters.
    for name in sorted(names, key=lambda name: [(each.upper(), each) for each in name]):
        if name.endswith(".conf") and name != ".conf":
            yield str(path / name), _text(path / name)


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        remedy = "name Mosquitto's profile, a file that the forwarder's user may read"
        raise ProfileError(str(file), error.strerror or str(error), remedy) from error
    if len(content) > _MOST_BYTES:
        raise ProfileError(str(file), f"it has more than {_MOST_BYTES} bytes", "name Mosquitto's profile")
    return content.decode("utf-8", "replace")
