"""The forwarder's settings: one typed place, each with its unit, range and default.

A TOML file holds them, at the top level and in the tables `[local]`, `[cloud]` and `[health]`. The
environment overrides it: `EVENTPLANE_THING`, `EVENTPLANE_CLOUD_HOST`, ... Relative paths start at the file's
directory.
"""

# ruff: noqa: RUF009 -- the functions below make dataclass fields, one for each class

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge.errors import SettingsError
from edge.settings_reader import SettingsReader, choice, number, path, text, whole, word
from eventplane.limits import MAX_BATCH_EVENTS, MAX_EVENT_BYTES, MAX_PAYLOAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """The home's own broker."""

    host: str = text("127.0.0.1")
    port: int = whole(1883, 1, 65_535, "TCP port")
    client_id: str = text("eventplane-forwarder")
    keepalive_s: int = whole(30, 5, 1_200, "seconds")
    connect_timeout_s: float = number(5.0, 0.1, 120.0, "seconds")
    reconnect_min_s: float = number(0.1, 0.01, 60.0, "seconds")
    reconnect_max_s: float = number(2.0, 0.01, 600.0, "seconds")
    # Unconfirmed deliveries to one inbox, and how long one may stay unconfirmed before it is sent again.
    inbox_window: int = whole(100, 1, 1_000, "deliveries")
    receipt_timeout_s: float = number(10.0, 0.1, 3_600.0, "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSettings:
    """The cloud's broker: AWS IoT Core. Client id and certificate are the thing's."""

    host: str = text()
    port: int = whole(8883, 1, 65_535, "TCP port")
    ca: Path = path()
    certificate: Path = path()
    key: Path = path()
    # The topic rule that Basic Ingest publishes go to. Like the thing's name it becomes a part of the topic.
    rule: str = word(r"[A-Za-z0-9_]{1,128}", "a topic rule's name")
    keepalive_s: int = whole(60, 30, 1_200, "seconds")  # IoT Core takes 30 to 1,200
    connect_timeout_s: float = number(10.0, 0.1, 120.0, "seconds")
    # IoT Core takes one CONNECT a second from one client.
    reconnect_min_s: float = number(1.0, 0.01, 60.0, "seconds")
    reconnect_max_s: float = number(60.0, 0.01, 3_600.0, "seconds")
    max_unacknowledged: int = whole(100, 2, 100, "publishes")  # IoT Core's own limit is 100
    puback_timeout_s: float = number(30.0, 0.1, 600.0, "seconds")
    # Never below the largest event, so that each one fits a publish.
    payload_bytes: int = whole(MAX_PAYLOAD_BYTES, MAX_EVENT_BYTES + 1024, MAX_PAYLOAD_BYTES, "bytes")
    batch_events: int = whole(250, 1, MAX_BATCH_EVENTS, "events")


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """The health endpoint. Nothing protects it, so it is for programs on this device."""

    host: str = text("127.0.0.1")
    port: int = whole(9464, 0, 65_535, "TCP port, 0 for no endpoint,")
    # When the oldest event that waits for a reachable destination is too old to be called healthy.
    urgent_age_s: float = number(60.0, 1.0, 86_400.0, "seconds")
    normal_age_s: float = number(900.0, 1.0, 604_800.0, "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that `python -m edge` needs to know."""

    local: LocalSettings
    cloud: CloudSettings
    health: HealthSettings
    thing: str = word(r"[A-Za-z0-9:_-]{1,128}", "a thing's name")
    contract: Path = path()  # in its compiled form
    spool: Path = path()
    # Room for events that wait; about 700,000 readings. What is full refuses, so it never fills the disk.
    spool_capacity_bytes: int = whole(256 * 1024**2, 1024**2, 1024**4, "bytes")
    # How often the device reports its health, and what it sent, to the cloud.
    heartbeat_s: float = number(300.0, 1.0, 86_400.0, "seconds")
    manifest_interval_s: float = number(900.0, 1.0, 86_400.0, "seconds")
    # For unacknowledged publishes, within systemd's patience.
    stop_grace_s: float = number(2.0, 0.0, 3.0, "seconds")
    log_level: str = choice("info", ("debug", "info", "warning", "error"))


TABLES = {"local": LocalSettings, "cloud": CloudSettings, "health": HealthSettings}


def load_settings(file: Path, environment: dict[str, str]) -> Settings:
    """The settings of a TOML `file`, overridden by `environment`. Raises `SettingsError`."""
    reader = SettingsReader(file, environment)
    top = reader.read(Settings, tables=TABLES)
    tables = {name: reader.read(kind, name) for name, kind in TABLES.items()}
    if reader.problems:
        raise SettingsError(reader.problems)
    return Settings(**{name: kind(**tables[name]) for name, kind in TABLES.items()}, **top)
