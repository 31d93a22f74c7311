"""The forwarder's settings: one typed place, each with its unit, range and default.

A TOML file holds them, at the top level and in the tables `[local]`, `[cloud]`, `[health]` and, for a device
that gets its certificate by itself, `[provisioning]`; for one whose broker others in the home shall find,
`[announcement]`. The environment overrides it: `EVENTPLANE_THING`,
`EVENTPLANE_CLOUD_HOST`, ... Relative paths start at the file's directory.
"""

# ruff: noqa: RUF009 -- the functions below make dataclass fields, one for each class

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from edge.errors import SettingsError
from edge.mqtt import Login, TlsFiles
from edge.packing import LONGEST_DELAY_MS
from edge.publishing import BYTES_PER_S, PUBLISHES_PER_S
from edge.setting_conflicts import conflicts
from edge.settings_reader import SettingsReader, choice, flag, number, path, text, whole, word
from eventplane.limits import MAX_BATCH_EVENTS, MAX_EVENT_BYTES, MAX_PAYLOAD_BYTES
from eventplane.topics import (
    CLAIM_CLIENT_PREFIX,
    RENEWAL_CLIENT_PREFIX,
    basic_ingest_topic,
    device_topic,
)

_LONGEST_PROVISIONED = 128 - max(len(CLAIM_CLIENT_PREFIX), len(RENEWAL_CLIENT_PREFIX))
"""Characters of a name that, behind either prefix, is a client id of AWS IoT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """The home's own broker."""

    host: str = text("127.0.0.1")  # or the path of a Unix socket
    port: int = whole(1883, 1, 65_535, "TCP port")
    # Mosquitto's own profile: where it leads the forwarder goes, also when it changes. Host and port then
    # count only until it could be read.
    profile: Path | None = path(None, "a path; Mosquitto's profile")
    client_id: str = text("eventplane-forwarder")
    # For a broker that keeps services apart (docs/device.md): who the forwarder is to it.
    username: str | None = word(
        r"[^\x00-\x1f\x7f]{1,128}", "a user name; none for a broker that does not ask", None
    )
    password_file: Path | None = path(None, "a path; needed with a user name")
    keepalive_s: int = whole(30, 5, 1_200, "seconds")
    connect_timeout_s: float = number(5.0, 0.1, 120.0, "seconds")
    reconnect_min_s: float = number(0.1, 0.01, 60.0, "seconds")
    reconnect_max_s: float = number(2.0, 0.01, 600.0, "seconds")
    # Unconfirmed deliveries to one inbox, and how long one may stay unconfirmed before it is sent again.
    inbox_window: int = whole(100, 1, 1_000, "deliveries")
    receipt_timeout_s: float = number(10.0, 0.1, 3_600.0, "seconds")

    @property
    def login(self) -> Login | None:
        """Who the forwarder is to the home's broker, None for nobody in particular."""
        if self.username is None or self.password_file is None:
            return None
        return Login(self.username, self.password_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSettings:
    """The cloud's broker: AWS IoT Core, or another one. Client id and certificate are the thing's."""

    host: str = text()
    port: int = whole(8883, 1, 65_535, "TCP port")
    # Without it everybody on the way can read and change everything: only for a broker on this device.
    tls: bool = flag(True)
    ca: Path | None = path(None, "a path; needed for TLS")
    certificate: Path | None = path(None, "a path; needed for TLS")
    key: Path | None = path(None, "a path; needed for TLS")
    protocol: Literal["3.1.1", "5"] = choice("3.1.1", ("3.1.1", "5"))  # of MQTT
    # Where events are published to; by default IoT Core's Basic Ingest. For urgent events {rule} is the rule
    # of their own lane, which is called after this one.
    topic: str = word(
        r"([^#+{}\x00]|\{thing\}|\{rule\}){1,256}",
        "a topic, in which {thing} and {rule} are replaced",
        basic_ingest_topic("{rule}", "{thing}"),
    )
    # The topic rule that Basic Ingest publishes go to. Like the thing's name it becomes a part of the topic.
    # IoT Core allows 128 characters, of which `_urgent` takes seven.
    rule: str | None = word(r"[A-Za-z0-9_]{1,121}", "a topic rule's name; needed for {rule}", None)
    # Where the cloud publishes what it sends to the device. Whoever has no downlink sets it to "none".
    inbox_topic: str = word(
        r"([^#+{}\x00]|\{thing\}){1,256}",
        "a topic, in which {thing} is replaced, or none",
        device_topic("{thing}", "inbox"),
    )
    # Compressed batches, or one plain event a publish, for readers that know CloudEvents and nothing of ours.
    mode: str = choice("batch", ("batch", "single"))
    keepalive_s: int = whole(60, 30, 1_200, "seconds")  # IoT Core takes 30 to 1,200
    connect_timeout_s: float = number(10.0, 0.1, 120.0, "seconds")
    # IoT Core takes one CONNECT a second from one client.
    reconnect_min_s: float = number(1.0, 0.01, 60.0, "seconds")
    reconnect_max_s: float = number(60.0, 0.01, 3_600.0, "seconds")
    max_unacknowledged: int = whole(100, 2, 100, "publishes")  # IoT Core's own limit is 100
    puback_timeout_s: float = number(30.0, 0.1, 600.0, "seconds")
    # The quotas of one connection, see edge/publishing.py.
    publishes_per_s: int = whole(PUBLISHES_PER_S, 1, 1_000, "publishes a second")
    bytes_per_s: int = whole(BYTES_PER_S, 16 * 1024, 1024**3, "bytes a second")
    # After so long without a PUBACK the broker is asked for one: a line may be dead and look alive.
    probe_interval_s: float = number(300.0, 0.1, 86_400.0, "seconds")
    # Never below the largest event, so that each one fits a publish.
    payload_bytes: int = whole(MAX_PAYLOAD_BYTES, MAX_EVENT_BYTES + 1024, MAX_PAYLOAD_BYTES, "bytes")
    batch_events: int = whole(250, 1, MAX_BATCH_EVENTS, "events")
    # How long events may wait for company in a frame, the contract says (batching_delay_ms); this bounds it.
    longest_delay_ms: int = whole(LONGEST_DELAY_MS, 0, LONGEST_DELAY_MS, "milliseconds")

    @property
    def subscribes(self) -> bool:
        """Whether the cloud sends anything to the device."""
        return self.inbox_topic != "none"

    @property
    def identity(self) -> TlsFiles | None:
        """Who the device is and whom it trusts, None without TLS."""
        if not self.tls or self.ca is None or self.certificate is None or self.key is None:
            return None
        return TlsFiles(self.ca, self.certificate, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """The health endpoint. Nothing protects it, so it is for programs on this device."""

    host: str = text("127.0.0.1")
    port: int = whole(9464, 0, 65_535, "TCP port, 0 for no endpoint,")
    # When the oldest event that waits for a reachable destination is too old to be called healthy.
    urgent_age_s: float = number(60.0, 1.0, 86_400.0, "seconds")
    normal_age_s: float = number(900.0, 1.0, 604_800.0, "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningSettings:
    """Fleet provisioning by claim: how the device gets the key and certificate that `[cloud]` names."""

    template: str = word(r"[0-9A-Za-z_-]{1,36}", "a provisioning template's name")
    claim_certificate: Path = path()
    claim_key: Path = path()
    # Who makes the private key. The device needs the openssl program for it; the cloud sends it.
    keys: str = choice("device", ("device", "cloud"))
    # A certificate is replaced when a third of its life is left, and at this age in any case.
    max_age_days: int = whole(365, 1, 36_500, "days")
    answer_timeout_s: float = number(30.0, 0.1, 600.0, "seconds")
    retry_min_s: float = number(10.0, 0.1, 3_600.0, "seconds")
    retry_max_s: float = number(3_600.0, 0.1, 86_400.0, "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementSettings:
    """The broker, announced to the home by DNS-SD: by a program of its own, not by the forwarder."""

    # Named one by one, so that the uplink is none of them by mistake.
    interfaces: str = word(
        r"[A-Za-z0-9_.-]{1,15}(,[A-Za-z0-9_.-]{1,15})*", "names of network interfaces with commas between"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The interfaces, one by one."""
        return tuple(self.interfaces.split(","))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that `python -m edge` needs to know."""

    local: LocalSettings
    cloud: CloudSettings
    health: HealthSettings
    provisioning: ProvisioningSettings | None
    announcement: AnnouncementSettings | None = None
    thing: str = word(r"[A-Za-z0-9:_-]{1,128}", "a thing's name")
    contract: Path = path()  # in its compiled form
    spool: Path = path()
    # Room for events that wait; about 700,000 readings. What is full refuses, so it never fills the disk.
    spool_capacity_bytes: int = whole(256 * 1024**2, 1024**2, 1024**4, "bytes")
    # How many deliveries may wait; an event for two inboxes counts twice. The scarcer capacity decides.
    spool_capacity_deliveries: int = whole(1_000_000, 100, 10**9, "deliveries")
    # How often the device reports its health, and what it sent, to the cloud.
    heartbeat_s: float = number(300.0, 1.0, 86_400.0, "seconds")
    manifest_interval_s: float = number(3_600.0, 1.0, 86_400.0, "seconds")
    # For unacknowledged publishes, within systemd's patience.
    stop_grace_s: float = number(2.0, 0.0, 3.0, "seconds")
    log_level: str = choice("info", ("debug", "info", "warning", "error"))


TABLES = {
    "local": LocalSettings,
    "cloud": CloudSettings,
    "health": HealthSettings,
    "provisioning": ProvisioningSettings,
    "announcement": AnnouncementSettings,
}
OPTIONAL = frozenset({"provisioning", "announcement"})
"""Tables that a file may leave out as a whole; otherwise what is required in them is missed."""


def load_settings(file: Path, environment: dict[str, str]) -> Settings:
    """The settings of a TOML `file`, overridden by `environment`. Raises `SettingsError`."""
    reader = SettingsReader(file, environment)
    top = reader.read(Settings, tables=TABLES)
    present = {name: kind for name, kind in TABLES.items() if name not in OPTIONAL or reader.has(name)}
    tables = {name: reader.read(kind, name) for name, kind in present.items()}
    known = {each.setting for each in reader.problems}
    complete = {name: _with_defaults(kind, tables[name]) for name, kind in present.items()}
    found = conflicts(complete["local"], complete["cloud"], provisions="provisioning" in present)
    if "announcement" in present and complete["local"]["profile"] is None:
        reader.complain(
            "local.profile", "it is missing", "an announcement says what Mosquitto's profile says"
        )
    if "provisioning" in present and len(top.get("thing", "")) > _LONGEST_PROVISIONED:
        reader.complain(
            "thing",
            f"it has more than {_LONGEST_PROVISIONED} characters",
            "give a device that is to be provisioned a shorter name",
        )
    reader.problems += [each for each in found if each.setting not in known]
    if reader.problems:
        raise SettingsError(reader.problems)
    made: dict[str, Any] = dict.fromkeys(TABLES)
    made |= {name: kind(**tables[name]) for name, kind in present.items()}
    return Settings(**made, **top)


def _with_defaults(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: given.get(each.name, each.default) for each in fields(kind)}
