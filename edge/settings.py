"""The forwarder's settings: each declared once, with its default, unit, range and meaning.

A TOML file holds them, at the top level and in one table per dataclass: `[local]`, `[cloud]`, `[health]` and,
if the device uses them, `[provisioning]` and `[announcement]`. The environment overrides the file:
`EVENTPLANE_THING`, `EVENTPLANE_CLOUD_HOST`, ... Relative paths start at the file's directory. The reader, the
reference table of the docs and the commented example file are made from these declarations: the text below a
setting is its meaning.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from edge.errors import DeviceSettingsError, SettingProblem
from eventplane.fields import Texts, as_text, choice, declared, flag, number, shown, whole, word
from eventplane.limits import MAX_BATCH_EVENTS, MAX_BATCHING_DELAY_MS, MAX_EVENT_BYTES, MAX_PAYLOAD_BYTES
from eventplane.topics import CLAIM_CLIENT_PREFIX, RENEWAL_CLIENT_PREFIX, basic_ingest_topic, device_topic
from eventplane.values import nearest
from eventplane_mqtt import Endpoint, Login, TlsFiles
from eventplane_mqtt.endpoint import Proxy, is_host, is_on_this_device

_LONGEST_PROVISIONED = 128 - max(len(CLAIM_CLIENT_PREFIX), len(RENEWAL_CLIENT_PREFIX))
"""Characters of a name that, behind either prefix, is a client id of AWS IoT."""


def host_name(default: Any = MISSING, *, is_socket_allowed: bool = False) -> Any:
    """Declare a host name or an IP address, or the path of a Unix socket where `is_socket_allowed`."""

    def read(raw: Any) -> str:
        if not is_host(as_text(raw)) and not (is_socket_allowed and re.fullmatch(r"/[^\x00]+", raw)):
            raise ValueError
        return str(raw)

    accepts = "a host name or IP address, without scheme and port"
    return declared(default, Texts(f"{accepts}, or a path" if is_socket_allowed else accepts, read))


def path(default: Any = MISSING, accepts: str = "a path") -> Any:
    """Declare a path, which need not exist yet. A text of several lines is a file's content, not its name."""

    def read(raw: Any) -> Path:
        if not as_text(raw).isprintable():
            raise ValueError
        return Path(raw)

    return declared(default, Texts(accepts, read))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """The home's own broker."""

    host: str = host_name("127.0.0.1", is_socket_allowed=True)
    """Address of the broker, or the path of its Unix socket."""
    port: int = whole(1883, 1, 65_535, "TCP port")
    """Port of the broker."""
    profile: Path | None = path(None, "a path; Mosquitto's profile")
    """Mosquitto's configuration file, which gives address and port, also after a change; host and port then
    count only until the file can be read."""
    client_id: str = word(r"[^\x00-\x1f\x7f]{1,128}", "a client id", "eventplane-forwarder")
    """MQTT client id."""
    # Only MQTT 5 says for which device a message waited (ADR 58).
    protocol: Literal["3.1.1", "5"] = choice("5", ("3.1.1", "5"))
    """MQTT version. With 3.1.1 messages that wait on a card from another device are sent as this device's."""
    username: str | None = word(
        r"[^\x00-\x1f\x7f]{1,128}", "a user name; none for a broker that does not ask", None
    )
    """User name, for a broker that keeps services apart."""
    password_file: Path | None = path(None, "a path; needed with a user name")
    """File with the password of the user name."""
    keepalive_s: int = whole(30, 5, 1_200, "seconds")
    """MQTT keepalive."""
    connect_timeout_s: float = number(5.0, 0.1, 120.0, "seconds")
    """Time for each step until it is subscribed: look-up, connection, each answer of the broker."""
    reconnect_min_s: float = number(0.1, 0.01, 60.0, "seconds")
    """Shortest pause between two attempts."""
    reconnect_max_s: float = number(2.0, 0.01, 600.0, "seconds")
    """Longest pause between two attempts."""
    buffer_bytes: int = whole(2 * 1024 * 1024, 64 * 1024, 64 * 1024 * 1024, "bytes")
    """Memory of received messages that wait for the spool, in each of the two sessions; the broker keeps what
    exceeds it."""
    inbox_window: int = whole(100, 1, 1_000, "deliveries")
    """Unconfirmed deliveries to one inbox with receipts."""
    receipt_timeout_s: float = number(10.0, 0.1, 3_600.0, "seconds")
    """Time after which an unconfirmed delivery is sent again."""

    @property
    def login(self) -> Login | None:
        """The forwarder's user at the home's broker, None for an anonymous one."""
        return _login(self.username, self.password_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSettings:
    """The cloud's broker: AWS IoT Core, or another one. The client id is the thing's name."""

    host: str = host_name()
    """Host name of the broker; of IoT Core the data endpoint (Data-ATS)."""
    port: int = whole(8883, 1, 65_535, "TCP port")
    """Port of the broker."""
    tls: bool = flag(True)
    """TLS; without it only a broker on this device is accepted."""
    ca: Path | None = path(None, "a path; needed for TLS")
    """Certificates of the authorities that vouch for the broker, PEM."""
    certificate: Path | None = path(None, "a path; needed for TLS")
    """The device's certificate, PEM."""
    key: Path | None = path(None, "a path; needed for TLS")
    """The device's private key, PEM, mode 0600; may be the same file."""
    proxy_host: str | None = host_name(None)
    """HTTP proxy that connects the device with the broker (CONNECT), also for its provisioning."""
    proxy_port: int = whole(3128, 1, 65_535, "TCP port")
    """Port of the proxy."""
    # A colon ends the name in Basic authentication.
    proxy_username: str | None = word(r"[^\x00-\x1f\x7f:]{1,128}", "a user name without a colon", None)
    """User name, for a proxy that asks for one (Basic)."""
    proxy_password_file: Path | None = path(None, "a path; needed with a user name")
    """File with the password of the user name, mode 0600."""
    protocol: Literal["3.1.1", "5"] = choice("3.1.1", ("3.1.1", "5"))
    """MQTT version."""
    # The rule of urgent events is named after `rule`.
    topic: str = word(
        r"([^#+{}\x00-\x1f\x7f]|\{thing\}|\{rule\}){1,256}",
        "a topic, in which {thing} and {rule} are replaced",
        basic_ingest_topic("{rule}", "{thing}"),
    )
    """Topic of the events; the default is IoT Core's Basic Ingest."""
    # IoT Core allows 128 characters, of which `_urgent` takes seven.
    rule: str | None = word(r"[A-Za-z0-9_]{1,121}", "a topic rule's name; needed for {rule}", None)
    """Topic rule that reads the events; urgent events go to `<rule>_urgent`."""
    inbox_topic: str = word(
        r"([^#+{}\x00-\x1f\x7f]|\{thing\}){1,256}",
        "a topic, in which {thing} is replaced, or none",
        device_topic("{thing}", "inbox"),
    )
    """Topic on which the cloud sends to the device; none without a downlink."""
    mode: str = choice("batch", ("batch", "single"))
    """Compressed batches, or one plain event a publish for readers that know only CloudEvents."""
    # IoT Core accepts 30 to 1,200.
    keepalive_s: int = whole(60, 30, 1_200, "seconds")
    """MQTT keepalive."""
    # A handshake with certificates takes 15 s over a line of 1 kB/s with a round trip of 5 s.
    connect_timeout_s: float = number(30.0, 0.1, 120.0, "seconds")
    """Time for each step until it is subscribed: look-up, connection, proxy, TLS, the broker's answers."""
    buffer_bytes: int = whole(1024 * 1024, 64 * 1024, 64 * 1024 * 1024, "bytes")
    """Memory of received messages that wait for the spool; what exceeds it is not acknowledged, and the cloud
    sends it again."""
    # IoT Core accepts one CONNECT a second from one client.
    reconnect_min_s: float = number(1.0, 0.01, 60.0, "seconds")
    """Shortest pause between two attempts."""
    reconnect_max_s: float = number(60.0, 0.01, 3_600.0, "seconds")
    """Longest pause between two attempts; while an urgent event waits, at most five times the shortest."""
    # IoT Core's own limit is 100.
    max_unacknowledged: int = whole(100, 2, 100, "publishes")
    """Publishes in flight without an acknowledgement."""
    puback_timeout_s: float = number(30.0, 0.1, 600.0, "seconds")
    """Time without an acknowledgement since the publish left, or its bytes moved; it ends the connection."""
    # The quotas of AWS IoT Core for one connection; accounts of today have more publishes.
    publishes_per_s: int = whole(100, 1, 1_000, "publishes a second")
    """The broker's quota for one connection."""
    bytes_per_s: int = whole(512 * 1024, 16 * 1024, 1024**3, "bytes a second")
    """The broker's quota for one connection."""
    # For a metered line. 10 MB a day are 300 MB a month.
    bytes_per_day: int = whole(0, 0, 10**12, "bytes a day, 0 for no budget,")
    """Budget of all publishes; when it is used up, only urgent events go. It comes back evenly over a day."""
    # A connection may be dead and look alive.
    probe_interval_s: float = number(300.0, 0.1, 86_400.0, "seconds")
    """Time without an acknowledgement after which a ping is sent."""
    # Never below the largest event, so that each one fits a publish.
    payload_bytes: int = whole(MAX_PAYLOAD_BYTES, MAX_EVENT_BYTES + 1024, MAX_PAYLOAD_BYTES, "bytes")
    """Largest payload of a publish."""
    batch_events: int = whole(250, 1, MAX_BATCH_EVENTS, "events")
    """Most events in a publish."""
    longest_delay_ms: int = whole(MAX_BATCHING_DELAY_MS, 0, MAX_BATCHING_DELAY_MS, "milliseconds")
    """Upper bound for the contract's `batching_delay_ms`."""

    @property
    def subscribes(self) -> bool:
        """True if the cloud sends anything to the device."""
        return self.inbox_topic != "none"

    @property
    def proxy(self) -> Proxy | None:
        """The way to the broker, None for a direct one."""
        login = _login(self.proxy_username, self.proxy_password_file)
        return None if self.proxy_host is None else Proxy(self.proxy_host, self.proxy_port, login)

    def endpoint(self, client_id: str, subscriptions: tuple[str, ...], tls: TlsFiles | None) -> Endpoint:
        """Return the broker for `client_id`, who proves to be it by `tls`, in a session that is not kept."""
        return Endpoint(
            self.host,
            self.port,
            client_id,
            clean_session=True,
            keepalive_s=self.keepalive_s,
            connect_timeout_s=self.connect_timeout_s,
            subscriptions=subscriptions,
            tls=tls,
            proxy=self.proxy,
        )

    @property
    def identity(self) -> TlsFiles | None:
        """The device's certificate and the authorities it trusts, None without TLS."""
        if not self.tls or self.ca is None or self.certificate is None or self.key is None:
            return None
        return TlsFiles(self.ca, self.certificate, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """The health endpoint: HTTP without protection, for programs on this device."""

    host: str = host_name("127.0.0.1")
    """Address of the endpoint."""
    port: int = whole(9464, 0, 65_535, "TCP port, 0 for no endpoint,")
    """Port of the endpoint."""
    urgent_age_s: float = number(60.0, 1.0, 86_400.0, "seconds")
    """Age of an urgent event, deliverable so long, that is a failure."""
    normal_age_s: float = number(900.0, 1.0, 604_800.0, "seconds")
    """Age of a normal event, deliverable so long, that is a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningSettings:
    """Fleet provisioning by claim: how the device gets the key and certificate that `[cloud]` names."""

    template: str = word(r"[0-9A-Za-z_-]{1,36}", "a provisioning template's name")
    """Provisioning template."""
    claim_certificate: Path = path()
    """Certificate of the claim, PEM."""
    claim_key: Path = path()
    """Private key of the claim, PEM, mode 0600."""
    keys: str = choice("device", ("device", "cloud"))
    """Who makes the private key: the device, with openssl, or the cloud, which sends it."""
    max_age_days: int = whole(365, 1, 36_500, "days")
    """Age at which a certificate is replaced; also when a third of its life is left."""
    answer_timeout_s: float = number(30.0, 0.1, 600.0, "seconds")
    """Time to wait for the cloud's answer."""
    retry_min_s: float = number(10.0, 0.1, 3_600.0, "seconds")
    """Shortest pause between two attempts."""
    retry_max_s: float = number(3_600.0, 0.1, 86_400.0, "seconds")
    """Longest pause between two attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementSettings:
    """The broker, announced to the home by DNS-SD: by a program of its own, not by the forwarder."""

    # Named one by one, so that the interface of the uplink is none of them by mistake.
    interfaces: str = word(
        r"[A-Za-z0-9_.-]{1,15}(,[A-Za-z0-9_.-]{1,15})*", "names of network interfaces with commas between"
    )
    """Interfaces on which the broker is announced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one device: those at the top level, and the tables."""

    local: LocalSettings
    cloud: CloudSettings
    health: HealthSettings
    provisioning: ProvisioningSettings | None
    announcement: AnnouncementSettings | None = None
    thing: str = word(r"[A-Za-z0-9:_-]{1,128}", "a thing's name")
    """The device's name in the cloud."""
    contract: Path = path()
    """The compiled contract."""
    spool: Path = path()
    """The database that stores events; its directory must be on a disk."""
    spool_capacity_bytes: int = whole(256 * 1024**2, 4 * 1024**2, 1024**4, "bytes")
    """Room for pending events, about 700,000 readings; a full spool refuses new ones."""
    spool_capacity_deliveries: int = whole(1_000_000, 100, 10**9, "deliveries")
    """Pending deliveries; an event for two destinations counts twice; the scarcer capacity decides."""
    heartbeat_s: float = number(300.0, 1.0, 86_400.0, "seconds")
    """Interval of the health reports to the cloud."""
    manifest_interval_s: float = number(3_600.0, 1.0, 86_400.0, "seconds")
    """Interval of the reports of what was stored."""
    # Within systemd's patience.
    stop_grace_s: float = number(2.0, 0.0, 3.0, "seconds")
    """Time for unacknowledged publishes after a stop signal."""
    log_level: str = choice("info", ("debug", "info", "warning", "error"))
    """Least severe messages in the log."""


TABLES = {
    "local": LocalSettings,
    "cloud": CloudSettings,
    "health": HealthSettings,
    "provisioning": ProvisioningSettings,
    "announcement": AnnouncementSettings,
}
OPTIONAL = frozenset({"provisioning", "announcement"})
"""Tables that a file may leave out as a whole; of the others the required settings must be there."""


def load_settings(file: Path, environment: Mapping[str, str]) -> Settings:
    """Return the settings of a TOML `file`, overridden by `environment`. Raises `DeviceSettingsError`."""
    reader = SettingsReader(file, environment)
    top = reader.read(Settings, tables=TABLES)
    present = {name: kind for name, kind in TABLES.items() if name not in OPTIONAL or reader.has(name)}
    tables = {name: reader.read(kind, name) for name, kind in present.items()}
    known = {each.setting for each in reader.problems}
    complete = {
        name: {each.name: tables[name].get(each.name, each.default) for each in fields(kind)}
        for name, kind in present.items()
    }
    found = _conflicts(top.get("thing", ""), complete)
    reader.problems += [each for each in found if each.setting not in known]
    if reader.problems:
        raise DeviceSettingsError(reader.problems)
    made: dict[str, Any] = dict.fromkeys(TABLES)
    made |= {name: kind(**tables[name]) for name, kind in present.items()}
    return Settings(**made, **top)


class SettingsReader:
    """Reads a TOML `file` under an `environment` that overrides it; collects what is wrong as `problems`."""

    def __init__(self, file: Path, environment: Mapping[str, str]) -> None:
        self.problems: list[SettingProblem] = []
        self._folder = file.parent
        self._environment = environment
        self._document = self._parse(file)

    def read(self, kind: type, table: str = "", *, tables: Collection[str] = ()) -> dict[str, Any]:
        """Return the valid settings of the dataclass `kind` in `[table]`, "" for the top level.

        `tables` are members of the top level that are read by themselves.
        """
        known = {each.name: each for each in fields(kind) if each.name not in tables}
        prefix = f"{table}." if table else ""
        raw = self._table(table) if table else self._document
        for name in raw:
            if name not in known and name not in tables:
                remedy = f"remove it, or {nearest(name, known, prefix)}"
                self._note(prefix + name, "it is unknown", remedy)
        self._refuse_unknown_variables(prefix, known)
        values: dict[str, Any] = {}
        for name, each in known.items():
            variable = variable_of(prefix + name)
            given = self._environment.get(variable, raw.get(name))
            if given is not None:
                values |= self._checked(each, given, prefix)
            elif each.default is MISSING:
                self._note(
                    prefix + name, "it is missing", f"set it, or {variable}, to {each.metadata['accepts']}"
                )
        return values

    def has(self, table: str) -> bool:
        """Return whether the file has `[table]`; the environment alone does not make it."""
        return table in self._document

    def _note(self, setting: str, problem: str, remedy: str) -> None:
        self.problems.append(SettingProblem(setting, problem, remedy))

    def _parse(self, file: Path) -> dict[str, Any]:
        try:
            return tomllib.loads(file.read_text("utf-8-sig"))
        except OSError as error:
            problem = SettingProblem(
                "--settings", f"{file}: {error.strerror}", "name a file that can be read"
            )
            raise DeviceSettingsError([problem]) from error
        except (ValueError, RecursionError) as error:
            problem = SettingProblem("--settings", f"{file}: not TOML: {error}", "correct it at that place")
            raise DeviceSettingsError([problem]) from error

    def _table(self, name: str) -> Mapping[str, Any]:
        raw = self._document.get(name, {})
        if isinstance(raw, dict):
            return raw
        self._note(name, f"{shown(raw)} is not a table", f"write it as [{name}]")
        return {}

    def _checked(self, each: Field[Any], given: Any, prefix: str) -> dict[str, Any]:
        try:
            value = each.metadata["accepts"].read(given)
        except ValueError:
            remedy = f"give {each.metadata['accepts']}"
            self._note(prefix + each.name, f"{shown(given)} does not fit", remedy)
            return {}
        return {each.name: self._folder / value if isinstance(value, Path) else value}

    def _refuse_unknown_variables(self, prefix: str, known: Collection[str]) -> None:
        """Refuse those of a table only: other programs of the plane have variables with our prefix, too."""
        start = variable_of(prefix)
        variables = {variable_of(prefix + name) for name in known}
        for variable in sorted(self._environment):
            if prefix and variable.startswith(start) and variable not in variables:
                remedy = f"remove it, or {nearest(variable, variables)}"
                self._note(variable, "no setting has this variable", remedy)


def variable_of(setting: str) -> str:
    """Return the environment variable that overrides a setting."""
    return "EVENTPLANE_" + setting.replace(".", "_").upper()


def _conflicts(thing: str, tables: Mapping[str, Mapping[str, Any]]) -> Iterator[SettingProblem]:
    """Yield what is wrong with settings together, each of which is good by itself; `tables` with defaults."""
    local, cloud = tables["local"], tables["cloud"]
    if local["profile"] is not None or not OPTIONAL.isdisjoint(tables):
        from edge.parts import missing_parts  # which a device without any part need not hold

        yield from missing_parts(tables)
    yield from _local_conflicts(local)
    yield from _cloud_conflicts(cloud)
    if "announcement" in tables and local["profile"] is None:
        remedy = "an announcement says what Mosquitto's profile says"
        yield SettingProblem("local.profile", "it is missing", remedy)
    if "provisioning" in tables:
        yield from _provisioning_conflicts(thing, cloud)


def _local_conflicts(local: Mapping[str, Any]) -> Iterator[SettingProblem]:
    yield from _needed("local", local, "username", "password_file")
    yield from _needed("local", local, "password_file", "username")
    if local["password_file"] is not None and _is_elsewhere(local["host"]):
        problem = f"{local['host']} is not on this device, and would get a password over the network"
        yield SettingProblem("local.host", problem, "use the broker at 127.0.0.1: there is no TLS to others")


def _needed(table: str, settings: Mapping[str, Any], name: str, other: str) -> Iterator[SettingProblem]:
    """Yield that a setting is missing which the `other` one needs."""
    if settings[name] is None and settings[other] is not None:
        remedy = f"set it, or {variable_of(f'{table}.{name}')}, or remove {table}.{other}"
        yield SettingProblem(f"{table}.{name}", "it is missing", remedy)


def _cloud_conflicts(cloud: Mapping[str, Any]) -> Iterator[SettingProblem]:
    yield from _needed("cloud", cloud, "proxy_host", "proxy_username")
    yield from _needed("cloud", cloud, "proxy_username", "proxy_password_file")
    yield from _needed("cloud", cloud, "proxy_password_file", "proxy_username")
    if cloud["proxy_host"] is not None and not cloud["tls"]:
        yield SettingProblem("cloud.tls", "what passes a proxy needs it", "set it to true")
    for name in ("ca", "certificate", "key"):
        if cloud["tls"] and cloud[name] is None:
            remedy = f"set it, or {variable_of(f'cloud.{name}')}, to a path"
            yield SettingProblem(f"cloud.{name}", "it is missing", remedy)
    if not cloud["tls"] and _is_elsewhere(cloud["host"]):
        remedy = "set it to true, or use a broker at 127.0.0.1"
        yield SettingProblem("cloud.tls", f"{cloud['host']} is not on this device", remedy)
    if cloud["rule"] is None and "{rule}" in cloud["topic"]:
        remedy = "to a topic rule's name, or cloud.topic to one without {rule}"
        remedy = f"set it, or {variable_of('cloud.rule')}, {remedy}"
        yield SettingProblem("cloud.rule", "it is missing", remedy)


def _provisioning_conflicts(thing: str, cloud: Mapping[str, Any]) -> Iterator[SettingProblem]:
    """Yield why the device could not get a certificate, or replace the one it has."""
    if not cloud["tls"]:
        yield SettingProblem("cloud.tls", "a certificate is for TLS only", "set it to true")
    elif None not in (cloud["certificate"], cloud["key"]) and cloud["certificate"] != cloud["key"]:
        remedy = "name one file for both: only then are they replaced in one step"
        yield SettingProblem("cloud.key", "it is another file than cloud.certificate", remedy)
    if len(thing) > _LONGEST_PROVISIONED:
        problem = f"it has more than {_LONGEST_PROVISIONED} characters"
        yield SettingProblem("thing", problem, "give a device that is to be provisioned a shorter name")


def _login(username: str | None, password_file: Path | None) -> Login | None:
    return Login(username, password_file) if username and password_file else None


def _is_elsewhere(host: Any) -> bool:
    """Return whether `host` is another device; of a missing one nothing is known."""
    return isinstance(host, str) and not is_on_this_device(host)
