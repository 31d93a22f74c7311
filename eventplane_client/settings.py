"""How a client is configured: in code, or by the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eventplane.trace_context import DEFAULT_SHARE
from eventplane.webhook_url import MAX_PORT
from eventplane.whole_numbers import whole_number
from eventplane_client.errors import ClientSettingsError
from eventplane_client.memory_filter import WINDOW
from eventplane_client.ports import Mode

DISCOVER: Final = "discover:"
"""The transport where nothing is configured."""

DEFAULT_PROFILE: Final = Path("/etc/mosquitto/mosquitto.conf")
"""Mosquitto's own profile, where its packages put it."""

PREFIX = "EVENTPLANE_CLIENT_"
"""What the variables start with; the setting's name in capitals follows."""

_STATES = ("memory:", "sqlite:PATH", "dynamodb:TABLE", "dynamodb-log:TABLE")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """`participant` is the contract's name of who takes part.

    Attributes:
        transport: `memory:NAME`, `mqtt://HOST:PORT`, where a Unix socket's path may stand for host and port,
            `mqtt-profile:PATH` (Mosquitto's own profile says where the broker is, by default
            `DEFAULT_PROFILE`), `mqtt-dns-sd:THING` (the broker that the device THING announces in the home,
            by default any), `discover:` (the default: one of these two, the profile if this device has one),
            `sqs:ENVIRONMENT`, or the `NAME:ADDRESS` of a protocol that a package adds (docs/protocols.md).
        state: where it is remembered which events were handed out: `memory:`, `sqlite:PATH`,
            `dynamodb:TABLE`, `dynamodb-log:TABLE`. Needed for `exactly_once` over MQTT, with `discover:` it
            is `default_state`; for SQS the environment's table is the default, in memory it is memory.
        mode: how often an event comes out.
        window: events that are remembered; with DynamoDB seconds.
        gap_timeout_s: hold events that came before their predecessors by `sequence` for so long; None: not.
        contract: the compiled contract that is deployed, a file; over SQS a participant that asks needs it,
            in memory it says what each participant may send.
        max_receives: deliveries before a dead letter, where the transport does not know the limit.
        certificate: over MQTT the certificate of a broker with TLS, a PEM file: no other is trusted. A
            profile of Mosquitto names it already; a broker that is found by DNS-SD has to show it.
        subscriptions: for SQS the URL of the Subscriptions API; '' writes the environment's table instead.
        telemetry: `none`, or `opentelemetry`: tell the program's SDK of traces and metrics.
        trace_share: of the events without a trace so many are drawn, 0 to 1: as the plane's functions do.
    """

    participant: str
    transport: str = DISCOVER
    state: str = ""
    mode: Mode = Mode.EXACTLY_ONCE
    window: int | None = None
    gap_timeout_s: float | None = None
    telemetry: str = "none"
    trace_share: float = DEFAULT_SHARE
    max_receives: int = 5
    contract: str = ""
    subscriptions: str = ""
    certificate: str = ""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> ClientSettings:
        """The settings in `environment`. Raises `ClientSettingsError`."""

        def text(name: str, default: str | None = None) -> str:
            value = environment.get(PREFIX + name.upper(), default)
            if value is None:
                raise ClientSettingsError(name, "it is missing", f"set {PREFIX}{name.upper()}")
            return value

        def number(name: str, default: str) -> float:
            try:
                value = float(text(name, default))
            except ValueError as error:
                raise ClientSettingsError(name, "it is no number", "write a number") from error
            if not 0 < value < float("inf"):
                raise ClientSettingsError(name, f"{value} is out of range", "write a number above 0")
            return value

        try:
            mode = Mode(text("mode", Mode.EXACTLY_ONCE))
        except ValueError as error:
            raise ClientSettingsError("mode", str(error), f"use one of: {', '.join(Mode)}") from error
        gap = environment.get(f"{PREFIX}GAP_TIMEOUT_S")
        window = environment.get(f"{PREFIX}WINDOW")
        return cls(
            participant=text("participant"),
            transport=text("transport", DISCOVER),
            state=text("state", ""),
            mode=mode,
            window=int(number("window", str(WINDOW))) if window else None,
            gap_timeout_s=number("gap_timeout_s", "1") if gap else None,
            telemetry=text("telemetry", "none"),
            trace_share=_share(text("trace_share", str(DEFAULT_SHARE))),
            max_receives=int(number("max_receives", "5")),
            contract=text("contract", ""),
            subscriptions=text("subscriptions", ""),
            certificate=text("certificate", ""),
        )

    def state_parts(self, default: str) -> tuple[str, str]:
        """The state's kind and its place. Raises `ClientSettingsError`."""
        return _parts("state", self.state or default, _STATES)


def _share(value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ClientSettingsError("trace_share", f"{value!r} is no share", "write a number from 0 to 1")
    return share


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
