"""The settings of a client, in code or in the environment."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, Self, TypedDict

from eventplane.fields import Range, Texts, choice, number, shown, text, whole
from eventplane.limits import DAY_S, MAX_RECEIVES
from eventplane.sinks import MAX_PORT
from eventplane.trace_context import DEFAULT_SHARE
from eventplane.values import nearest, whole_number
from eventplane_client.delivery import Telemetry
from eventplane_client.errors import ClientSettingsError
from eventplane_client.ports import Mode
from eventplane_client.resequencer import GAP_TIMEOUT_S, MOST_HELD
from eventplane_client.system import TIMEOUT_MAX

DISCOVER: Final = "discover:"
"""The transport where nothing is configured."""

DEFAULT_PROFILE: Final = Path("/etc/mosquitto/mosquitto.conf")
"""Mosquitto's own profile, where its packages put it."""

PREFIX = "EVENTPLANE_CLIENT_"
"""What the variables start with; the setting's name in capitals follows."""

ARGUMENTS: Final[Mapping[str, Range]] = {
    "timeout_s": Range(0, TIMEOUT_MAX, "seconds"),
    "most": Range(1, 100_000, "events", is_whole=True),
}
"""What the calls of a client and an inbox accept, by their arguments' names."""

Word = Literal["exactly_once", "at_least_once", "at_most_once"]
"""A `Mode` as text."""

_STATES = ("memory:", "sqlite:PATH", "dynamodb:TABLE")


class Options(TypedDict, total=False):
    """The settings of `ClientSettings` that `connect` takes by name; None is not given."""

    state: str | None
    mode: Mode | Word | None
    window: int | None
    gap_timeout_s: float | None
    most_held: int | None
    telemetry: Telemetry | Literal["none", "opentelemetry"] | None
    trace_share: float | None
    max_receives: int | None
    give_up_after_s: int | None
    contract: str | None
    subscriptions: str | None
    certificate: str | None
    password_file: str | None


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a client, given by name or read from variables such as `EVENTPLANE_CLIENT_STATE`.

    Raises `ClientSettingsError` for a value out of its range.
    """

    transport: str = text(DISCOVER)
    """`memory:NAME`, `mqtt://HOST:PORT`, where a Unix socket's path may stand for host and port,
    `mqtt-profile:PATH` (Mosquitto's own profile says where the broker is, by default `DEFAULT_PROFILE`),
    `mqtt-dns-sd:THING` (the broker that the device THING announces in the home, by default any), `discover:`
    (one of these two, the profile if this device has one), `sqs:ENVIRONMENT`, or `NAME:ADDRESS` of a protocol
    that a package adds (docs/how-to/protocols.md)."""
    participant: str = text("")
    """The participant's name in the contract."""
    _: KW_ONLY
    state: str = text("")
    """Where it is remembered which events were handed out: `memory:`, `sqlite:PATH`, `dynamodb:TABLE`. The
    default is the file `default_state` over MQTT, the environment's table over SQS, and memory in memory."""
    mode: Mode = choice(Mode.EXACTLY_ONCE, tuple(Mode))
    """How often an event is handed out."""
    window: int | None = whole(None, 1, 10_000_000, "events (with DynamoDB: seconds)")
    """Events that are remembered, by default 100,000; with DynamoDB seconds, by default 14 days."""
    # SQS hides a message, and with it what is held, for 12 hours at most.
    gap_timeout_s: float = number(GAP_TIMEOUT_S, 0.001, 43_200, "seconds")
    """How long an event of an inbox with `ordering: source` waits for its predecessors; longer than a
    router's queue hides what a killed router had in flight."""
    # Of a standard queue so many messages are in flight at most (Amazon SQS quotas).
    most_held: int = whole(MOST_HELD, 1, 120_000, "events")
    """Events that are held for their order at most; one more ends the longest wait early."""
    telemetry: str = choice("none", ("none", "opentelemetry"))
    """Traces and metrics: none, or by the program's OpenTelemetry SDK."""
    trace_share: float = number(DEFAULT_SHARE, 0, 1, "a share")
    """Share of the events without a trace that get one, as in the functions."""
    # Of a redrive policy (Amazon SQS quotas).
    max_receives: int = whole(MAX_RECEIVES, 1, MAX_RECEIVES, "deliveries")
    """Deliveries before a dead letter in any case, where the transport does not know the limit."""
    give_up_after_s: int = whole(DAY_S, 1, DAY_S, "seconds")
    """How long after its first failure an event is tried, where neither its message nor `contract` has the
    inbox's schedule."""
    contract: str = text("")
    """The compiled contract that is deployed, a file; over SQS a participant that asks needs it, in memory it
    says what each participant may send."""
    subscriptions: str = text("")
    """For SQS the URL of the Subscriptions API; without it the environment's table is written instead."""
    certificate: str = text("")
    """Over MQTT the certificate of a broker with TLS, a PEM file: no other is trusted. A profile of Mosquitto
    names it already; a broker that is found by DNS-SD has to show it."""
    password_file: str = text("")
    """Over MQTT the file with the password of the user `participant`, for a broker that requires one: one
    line, which no other user may read."""

    def __new__(cls, *_: object, **named: object) -> Self:
        check_names(named)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if ":" in self.participant and ":" not in self.transport:
            # Before 0.4.0 the participant came first. No name has a colon, each transport has one.
            old = f"ClientSettings({self.transport!r}, {self.participant!r})"
            new = f"ClientSettings({self.participant!r}, {self.transport!r})"
            said = f"{old}: the transport comes first: write {new}"
            warnings.warn(said, DeprecationWarning, stacklevel=3)
            transport, participant = self.participant, self.transport
            object.__setattr__(self, "transport", transport)
            object.__setattr__(self, "participant", participant)
        for name in ("participant", "transport"):
            if not getattr(self, name):
                raise ClientSettingsError(name, "it is missing", f"set it, or {_variable(name)}")
        for each in fields(self):
            if (value := getattr(self, each.name)) or value != each.default:
                object.__setattr__(self, each.name, checked(each.name, value, each.metadata["accepts"]))
        object.__setattr__(self, "mode", Mode(self.mode))

    @classmethod
    def read(cls, environment: Mapping[str, str], **given: Any) -> ClientSettings:
        """Return the settings in `environment`; those `given`, unless None, replace them.

        An empty variable counts as unset. Raises `ClientSettingsError`.
        """
        values: dict[str, Any] = {
            name.removeprefix(PREFIX).lower(): value
            for name, value in environment.items()
            if name.startswith(PREFIX) and value
        }
        return cls(**values | {name: value for name, value in given.items() if value is not None})

    def state_parts(self, default: str) -> tuple[str, str]:
        """The state's kind and its place. Raises `ClientSettingsError`."""
        return _parts("state", self.state or default, _STATES)


def check_names(given: Collection[str], more: Collection[str] = ()) -> None:
    """Raise `ClientSettingsError` for a name that is no setting and none of `more`."""
    known = [*more, *(each.name for each in fields(ClientSettings))]
    for name in given:
        if name not in known:
            raise ClientSettingsError(name, "there is no such setting", nearest(name, known))


def checked(name: str, value: object, accepts: Range | Texts) -> Any:
    """Return `value` of the setting or argument `name`. Raises `ClientSettingsError` for a wrong one."""
    try:
        return accepts.read(value)
    except ValueError as error:
        raise ClientSettingsError(name, f"{shown(value)} does not fit", f"give {accepts}") from error


def check_arguments(**numbers: float) -> None:
    """Check the arguments of a call. Raises `ClientSettingsError` for one that is out of its range."""
    for name, value in numbers.items():
        checked(name, value, ARGUMENTS[name])


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _parts(setting: str, value: str, known: tuple[str, ...]) -> tuple[str, str]:
    kind, separator, rest = value.partition(":")
    if not separator or kind not in {each.partition(":")[0] for each in known}:
        raise ClientSettingsError(setting, f"{value!r} is not known", f"use one of: {', '.join(known)}")
    return kind, rest


def host_and_port(address: str, default_port: int) -> tuple[str, int]:
    """The parts of `//HOST:PORT`, `//[IPV6]:PORT` or `//PATH`. Raises `ClientSettingsError`."""
    address = address.removeprefix("//")
    if address.startswith("/"):
        return address, default_port
    host, _, port = address.partition(":")
    if address.startswith("["):
        host, _, port = address.removeprefix("[").partition("]")
        port = port.removeprefix(":")
    try:
        number = whole_number(port, MAX_PORT, 1) if port else default_port
    except ValueError:
        host = ""
    if not host:
        raise ClientSettingsError("transport", f"{address!r} is no address", "write mqtt://HOST:PORT")
    return host, number


def state_path(place: str) -> Path:
    """The file of `sqlite:PATH`. Raises `ClientSettingsError`."""
    if not place:
        raise ClientSettingsError("state", "it names no file", "write sqlite:PATH")
    return Path(place)


def default_state(environment: Mapping[str, str], participant: str) -> Path:
    """The file for the state of `participant`: in the directory that systemd's `StateDirectory` made, or else
    the user's own for such data (XDG Base Directory Specification)."""
    if folder := environment.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(folder) / f"{participant}.db"
    own = environment.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(own) / "eventplane" / f"{participant}.db"
