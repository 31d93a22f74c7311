"""How a client is configured: in code, or by the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eventplane.trace_context import DEFAULT_SHARE
from eventplane.webhook_url import MAX_PORT
from eventplane.whole_numbers import whole_number
from eventplane_client.errors import ClientSettingsError
from eventplane_client.memory_filter import WINDOW
from eventplane_client.ports import Mode
from eventplane_client.resequencer import GAP_TIMEOUT_S, MOST_HELD

PREFIX = "EVENTPLANE_CLIENT_"
"""What the variables start with; the setting's name in capitals follows."""

_STATES = ("memory:", "sqlite:PATH", "dynamodb:TABLE", "dynamodb-log:TABLE")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """`participant` is the contract's name of who takes part.

    Attributes:
        transport: `memory:NAME`, `mqtt://HOST:PORT`, where a Unix socket's path may stand for host and port,
            `mqtt-profile:PATH` (Mosquitto's own profile says where the broker is), `sqs:ENVIRONMENT`, or
            the `NAME:ADDRESS` of a protocol that a package adds (docs/protocols.md).
        state: where it is remembered which events were handed out: `memory:`, `sqlite:PATH`,
            `dynamodb:TABLE`, `dynamodb-log:TABLE`. Needed for `exactly_once` over MQTT; for SQS the
            environment's table is the default, in memory it is memory.
        mode: how often an event comes out.
        window: events that are remembered; with DynamoDB seconds.
        gap_timeout_s: hold events of an inbox with `ordering: source` that came before their predecessors for
            so long, seconds; longer than a router's queue hides what a router had in hand when it died.
        most_held: events that are held for their order at most; one more ends the longest wait early.
        contract: the compiled contract that is deployed, a file; over SQS a participant that asks needs it,
            in memory it says what each participant may send.
        max_receives: deliveries before a dead letter, where the transport does not know the limit.
        subscriptions: for SQS the URL of the Subscriptions API; '' writes the environment's table instead.
        telemetry: `none`, or `opentelemetry`: tell the program's SDK of traces and metrics.
        trace_share: of the events without a trace so many are drawn, 0 to 1: as the plane's functions do.
    """

    participant: str
    transport: str
    state: str = ""
    mode: Mode = Mode.EXACTLY_ONCE
    window: int | None = None
    gap_timeout_s: float = GAP_TIMEOUT_S
    most_held: int = MOST_HELD
    telemetry: str = "none"
    trace_share: float = DEFAULT_SHARE
    max_receives: int = 5
    contract: str = ""
    subscriptions: str = ""

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
        window = environment.get(f"{PREFIX}WINDOW")
        return cls(
            participant=text("participant"),
            transport=text("transport"),
            state=text("state", ""),
            mode=mode,
            window=int(number("window", str(WINDOW))) if window else None,
            gap_timeout_s=number("gap_timeout_s", str(GAP_TIMEOUT_S)),
            most_held=int(number("most_held", str(MOST_HELD))),
            telemetry=text("telemetry", "none"),
            trace_share=_share(text("trace_share", str(DEFAULT_SHARE))),
            max_receives=int(number("max_receives", "5")),
            contract=text("contract", ""),
            subscriptions=text("subscriptions", ""),
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
