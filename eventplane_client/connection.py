"""Makes a client: the backend is the configuration's choice, and only that one's libraries are loaded."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from eventplane.contract import REPLIES
from eventplane.contract.schedules import schedule_of
from eventplane.contract.subscription_table import SUBSCRIPTIONS_TABLE
from eventplane.envelope import parse_event
from eventplane.interest.table import INTEREST_TABLE
from eventplane.resource_names import resource_name
from eventplane.retries import RetrySchedule
from eventplane_client.asker import QueueAsker
from eventplane_client.client import Client, Subscriptions
from eventplane_client.conversation import Conversations, NoConversations, telling
from eventplane_client.delivery import NoTelemetry, Telemetry
from eventplane_client.errors import ClientSettingsError, NotRegisteredError, extras
from eventplane_client.memory import MemoryInterest, MemoryPlane, MemorySubscriptions, MemoryTransport
from eventplane_client.memory_duplicates import WINDOW, MemoryFilter
from eventplane_client.notices import Listener, Refused, log_notice
from eventplane_client.outbox_order import OutboxOrder
from eventplane_client.ports import Lease, MessageFilter, Mode, Transport
from eventplane_client.reader import Retries
from eventplane_client.settings import (
    DEFAULT_PROFILE,
    ClientSettings,
    Options,
    check_names,
    default_state,
    host_and_port,
    state_path,
)
from eventplane_client.subscription import NoSubscriptions
from eventplane_client.visibility import check_lease
from parts import load

if TYPE_CHECKING:
    from eventplane.contract import Contract
    from eventplane_client.mqtt import MqttTransport
    from eventplane_client.sqs import SqsTransport
    from eventplane_mqtt import Login
import shlex
from importlib.metadata import entry_points
from typing import Protocol

TRANSPORTS: Final = "eventplane.transports"
"""The group of entry points by which connectors are found (docs/how-to/protocols.md). The name is what the
setting `transport` begins with, before a colon; the object is a `Connector`."""


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


_ON_THIS_DEVICE: Final = ("127.0.0.1", 1883)
"""Where the broker is presumed while nothing was found."""

_planes: dict[str, MemoryPlane] = {}
_lock = threading.Lock()


def memory_plane(name: str = "") -> MemoryPlane:
    """The plane that `memory:NAME` leads to in this process."""
    with _lock:
        return _planes.setdefault(name, MemoryPlane())


def connect(
    transport: ClientSettings | str | None = None,
    participant: str | None = None,
    *,
    on_notice: Listener = log_notice,
    **more: Unpack[Options],
) -> Client:
    """Return a client, on a device as in the cloud: `connect("mqtt://127.0.0.1", "voice-service")`.

    Args:
        transport: the transport, or all settings. What is not given, the environment has.
        participant: the contract's name of who takes part.
        on_notice: called with what a program should know and need not handle (`eventplane_client.notices`).
        more: further settings by their names in `ClientSettings`; `telemetry` may also be an object, which is
            told what the client does.

    Raises `ClientSettingsError`, `MissingPackageError`, `NotRegisteredError`, `LeaseTooLongError`,
    `UnavailableError`.
    """
    check_names((*more,), ("on_notice",))
    told = more.pop("telemetry", None)
    word = told if isinstance(told, str) else None
    given: dict[str, Any] = {"participant": participant, "telemetry": word, **more}
    if isinstance(transport, ClientSettings):
        settings = replace(transport, **{name: each for name, each in given.items() if each is not None})
    else:
        settings = ClientSettings.read(os.environ, transport=transport, **given)
    with extras():
        telemetry = _telemetry(settings) if told is None or isinstance(told, str) else told
        make, address = connector_of(settings.transport, CONNECTORS)
        client = make(settings, address, on_notice)
    client.telemetry = telemetry
    return client


def _telemetry(settings: ClientSettings) -> Telemetry:
    if settings.telemetry == "none":
        return NoTelemetry()
    telemetry: Telemetry = load("tracing", "client").OpenTelemetry(settings.trace_share)
    return telemetry


def memory_client(settings: ClientSettings, name: str, on_notice: Listener) -> Client:
    plane = memory_plane(name)
    contract = _contract_of(settings)
    if contract:
        plane.enforce(contract)
    plane.listen(settings.participant, on_notice)
    transport = MemoryTransport(plane, settings.participant, _order(settings, contract))
    replies = MemoryTransport(plane, f"{settings.participant}.{REPLIES}")
    return client_of(
        settings,
        on_notice,
        transport,
        filter_of(settings, "memory:", on_notice),
        MemorySubscriptions(plane, settings.participant),
        interest=MemoryInterest(plane, settings.participant),
        conversations=QueueAsker(
            settings.participant,
            transport,
            replies,
            plane.handlers,
            telling(on_notice),
            announced=plane.announced,
        ),
        is_registered=lambda: plane.is_registered(settings.participant),
    )


def _contract_of(settings: ClientSettings) -> Contract | None:
    """The deployed contract, if `settings` name it. Raises `NotRegisteredError` for who is not in it."""
    contract = deployed(settings)
    if contract and settings.participant not in contract.participants:
        problem = f"the contract {settings.contract} has no such participant"
        raise NotRegisteredError(settings.participant, problem, "add it to the contract, or use a name of it")
    return contract


def deployed(settings: ClientSettings) -> Contract | None:
    """Return the deployed contract, if `settings` name it."""
    if not settings.contract:
        return None
    from eventplane_client.contract_in_force import deployed_contract

    return deployed_contract(Path(settings.contract))


def mqtt_client(settings: ClientSettings, address: str, on_notice: Listener) -> Client:
    from eventplane_client.mqtt import DEFAULT_PORT

    host, port = host_and_port(address, DEFAULT_PORT)
    return _over_mqtt(settings, on_notice, host, port)


def mqtt_profile_client(settings: ClientSettings, file: str, on_notice: Listener) -> Client:
    profile = Path(file) if file else DEFAULT_PROFILE
    return _over_mqtt(settings, on_notice, *_ON_THIS_DEVICE, profile=profile)


def mqtt_dns_sd_client(settings: ClientSettings, thing: str, on_notice: Listener) -> Client:
    return _over_mqtt(settings, on_notice, *_ON_THIS_DEVICE, announced_by=thing)


def discovering_client(settings: ClientSettings, _address: str, on_notice: Listener) -> Client:
    """The broker of this device where Mosquitto has a profile, else the one that is announced in the home."""
    if DEFAULT_PROFILE.is_file():
        return mqtt_profile_client(settings, "", on_notice)
    return mqtt_dns_sd_client(settings, "", on_notice)


def _over_mqtt(
    settings: ClientSettings,
    on_notice: Listener,
    host: str,
    port: int,
    *,
    profile: Path | None = None,
    announced_by: str | None = None,
) -> Client:
    from eventplane_client.mqtt import MqttTransport

    _contract_of(settings)
    _filter_on_device(settings, on_notice)  # a wrong setting must leave no thread behind
    transport = MqttTransport(
        settings.participant,
        host,
        port,
        max_receives=settings.max_receives,
        profile=profile,
        announced_by=announced_by,
        certificate=Path(settings.certificate) if settings.certificate else None,
        login=_login(settings),
        on_peer=telling(on_notice),
        on_refused=partial(_tell_refused, on_notice),
    )
    return client_over(settings, on_notice, transport)


def client_over(settings: ClientSettings, on_notice: Listener, transport: MqttTransport) -> Client:
    """Return a client over `transport`, which the client closes. Raises `ClientSettingsError`."""
    return client_of(
        settings,
        on_notice,
        transport,
        _filter_on_device(settings, on_notice),
        NoSubscriptions("a device routes by the contract of its image alone"),
        interest=transport.interest,
        conversations=transport,
        device=transport,
        has_expired=transport.has_expired,
    )


def client_of(
    settings: ClientSettings,
    on_notice: Listener,
    transport: Transport,
    open_filter: Callable[[], MessageFilter],
    subscriptions: Subscriptions,
    **more: Any,
) -> Client:
    """Return a client over `transport` with what `settings` say of reading; `more` goes to `Client`."""
    return Client(
        settings.participant,
        transport,
        open_filter,
        subscriptions,
        mode=settings.mode,
        gap_timeout_s=settings.gap_timeout_s,
        most_held=settings.most_held,
        on_notice=on_notice,
        retries=_retries(settings),
        **more,
    )


def _retries(settings: ClientSettings) -> Retries:
    contract = deployed(settings)
    participant = contract.participants.get(settings.participant) if contract else None
    if contract is None or participant is None:
        schedule = RetrySchedule(give_up_after_s=settings.give_up_after_s)
        return lambda _: schedule
    inbox, priority = participant.inbox, contract.priority
    return lambda event: schedule_of(inbox, priority(event, inbox))


def _tell_refused(on_notice: Listener, payload: bytes, reason: str) -> None:
    event = parse_event(payload)  # the client sends events only
    on_notice(Refused(event.source, event.id, reason))


def _filter_on_device(settings: ClientSettings, on_notice: Listener) -> Callable[[], MessageFilter]:
    if settings.state or settings.mode is not Mode.EXACTLY_ONCE:
        return filter_of(settings, "memory:", on_notice)

    def open_default() -> MessageFilter:
        # With the first inbox: a program that only puts leaves nothing on the disk.
        file = default_state(os.environ, settings.participant)
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ClientSettingsError("state", str(error), "name a file that can be written") from error
        return filter_of(settings, f"sqlite:{file}", on_notice)()

    return open_default


def _login(settings: ClientSettings) -> Login | None:
    from eventplane_mqtt import Login

    # The access rules of a home make each service a user of its own name.
    return Login(settings.participant, Path(settings.password_file)) if settings.password_file else None


def sqs_client(settings: ClientSettings, environment: str, on_notice: Listener) -> Client:
    from eventplane_aws.rules import SQS_WAIT
    from eventplane_client.aws import aws_client
    from eventplane_client.dynamodb_duplicates import TABLE as FILTER_TABLE
    from eventplane_client.dynamodb_routes import DynamoDbInterest
    from eventplane_client.sqs import FIRST_VISIBILITY_S, SqsTransport

    contract = _contract_of(settings)
    transport = SqsTransport.find(
        settings.participant,
        environment,
        aws_client("sqs"),
        max_receives=settings.max_receives,
        # Without a filter an event that is extended too late would be handed out twice.
        first_visibility_s=None if settings.mode is Mode.AT_MOST_ONCE else FIRST_VISIBILITY_S,
        order=_order(settings, contract),
        polls=aws_client("sqs", poll_s=SQS_WAIT.most),
    )
    default = f"dynamodb:{resource_name(environment, FILTER_TABLE)}"
    kind, table = settings.state_parts(default)
    if kind == "dynamodb":
        lease_s = transport.visibility_s or 0
        if settings.mode is Mode.EXACTLY_ONCE:
            check_lease(settings.participant, transport, lease_s)
        open_filter = _dynamodb(settings, table, lambda: lease_s)
    else:
        open_filter = filter_of(settings, default, on_notice)
    return client_of(
        settings,
        on_notice,
        transport,
        open_filter,
        _subscriptions(settings, environment, transport.inbox_arn),
        interest=DynamoDbInterest(
            aws_client("dynamodb"), resource_name(environment, INTEREST_TABLE), settings.participant
        ),
        conversations=_conversations(settings, contract, environment, transport, on_notice),
    )


def _order(settings: ClientSettings, contract: Contract | None) -> OutboxOrder | None:
    """Who sends into ordered inboxes knows them by the contract."""
    return OutboxOrder(contract, settings.participant) if contract else None


def _conversations(
    settings: ClientSettings,
    contract: Contract | None,
    environment: str,
    transport: SqsTransport,
    on_notice: Listener,
) -> Conversations:
    """Who asks knows by the contract who handles an event; who does not ask needs none."""
    from eventplane.contract.publication import CONTRACTS_TABLE
    from eventplane_client.aws import aws_client
    from eventplane_client.contract_in_force import ContractInForce

    if contract is None:
        return NoConversations("it is missing", "name the file of the compiled contract that is deployed")
    participant = contract.participants.get(settings.participant)
    if participant is None or participant.replies is None:
        return NoConversations(
            f"{settings.participant} asks nothing", "give it `asks` in the contract, and deploy"
        )
    in_force = ContractInForce(
        settings.participant,
        contract,
        aws_client("dynamodb"),
        contracts=resource_name(environment, CONTRACTS_TABLE),
        subscriptions=resource_name(environment, SUBSCRIPTIONS_TABLE),
        interest=resource_name(environment, INTEREST_TABLE),
    )
    replies = transport.for_replies(environment)
    return QueueAsker(
        settings.participant,
        transport,
        replies,
        in_force.handlers,
        telling(on_notice),
        announced=in_force.announced,
    )


def _subscriptions(settings: ClientSettings, environment: str, inbox: str) -> Subscriptions:
    if settings.subscriptions:
        from eventplane_client.api_subscriptions import ApiSubscriptions
        from eventplane_client.signed_http import SignedHttp

        return ApiSubscriptions(SignedHttp(settings.subscriptions), settings.participant, inbox)
    from eventplane_client.aws import aws_client
    from eventplane_client.dynamodb_routes import DynamoDbSubscriptions

    table = resource_name(environment, SUBSCRIPTIONS_TABLE)
    return DynamoDbSubscriptions(aws_client("dynamodb"), table, settings.participant)


def _dynamodb(settings: ClientSettings, table: str, lease: Lease) -> Callable[[], MessageFilter]:
    from eventplane_client.aws import aws_client
    from eventplane_client.dynamodb_duplicates import WINDOW_S, DynamoDbFilter

    window_s = settings.window or WINDOW_S
    return lambda: DynamoDbFilter(
        aws_client("dynamodb"), table, settings.participant, lease=lease, window_s=window_s
    )


def filter_of(settings: ClientSettings, default: str, on_notice: Listener) -> Callable[[], MessageFilter]:
    """Opens the filter of `settings`."""
    kind, place = settings.state_parts(default)
    window = settings.window or WINDOW
    if kind == "memory":
        return lambda: MemoryFilter(window=window)
    if kind == "sqlite":
        from eventplane_client.sqlite_duplicates import SqliteFilter

        path = state_path(place)
        return lambda: SqliteFilter(path, window=window, on_notice=on_notice)
    raise ClientSettingsError("state", f"{kind} needs SQS", "use sqlite:PATH")


CONNECTORS: Final[Mapping[str, Connector]] = {
    "discover": discovering_client,
    "memory": memory_client,
    "mqtt": mqtt_client,
    "mqtt-dns-sd": mqtt_dns_sd_client,
    "mqtt-profile": mqtt_profile_client,
    "sqs": sqs_client,
}
"""The library's own connectors, by what the setting `transport` begins with."""
