"""The forwarder's settings: one typed place, each with its unit, range and default.

A TOML file holds them, at the top level and in the tables `[local]`, `[cloud]` and, for a device that gets
its certificate by itself, `[provisioning]`. The environment overrides it: `EVENTPLANE_THING`,
`EVENTPLANE_CLOUD_HOST`, ... Relative paths start at the file's directory.
"""

# ruff: noqa: RUF009 -- the functions below make dataclass fields, one for each class

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge.settings_reader import choice, number, path, read_settings, text, whole, word
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
class Settings:
    """Everything that `python -m edge` needs to know."""

    local: LocalSettings
    cloud: CloudSettings
    provisioning: ProvisioningSettings | None = None
    thing: str = word(r"[A-Za-z0-9:_-]{1,128}", "a thing's name")
    contract: Path = path()  # in its compiled form
    spool: Path = path()
    stop_grace_s: float = number(
        2.0, 0.0, 3.0, "seconds"
    )  # for unacknowledged publishes, within systemd's patience
    log_level: str = choice("info", ("debug", "info", "warning", "error"))


def load_settings(file: Path, environment: dict[str, str]) -> Settings:
    """The settings of a TOML `file`, overridden by `environment`. Raises `SettingsError`."""
    tables = {"local": LocalSettings, "cloud": CloudSettings, "provisioning": ProvisioningSettings}
    top, found = read_settings(file, environment, Settings, tables, optional={"provisioning"})
    return Settings(
        local=LocalSettings(**found["local"]),
        cloud=CloudSettings(**found["cloud"]),
        provisioning=ProvisioningSettings(**found["provisioning"]) if "provisioning" in found else None,
        **top,
    )
