"""The faults of a run by their kinds, as schedules name them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from eventplane.contract import Contract, Ordering, compile_contract, load_compiled
from eventplane.contract.canonical import canonical_bytes
from local.chaos.cloud import Cloud
from local.chaos.faults import (
    NARROW_LINE,
    SLOW_LINE,
    BadWeather,
    ClockJump,
    ContractChange,
    Cut,
    Fault,
    Freeze,
    FullDisk,
    Kill,
    Malformed,
    ReconnectStorm,
)
from local.chaos.load import Sender
from local.home import Home
from local.weather import Weather


def faults_of(
    cloud: Cloud, homes: Sequence[Home], senders: Mapping[str, Sender]
) -> dict[tuple[str, int], Fault]:
    """Every fault that can be made here, by kind and home number. Those of the cloud stand at every home."""
    versions = [cloud.contract, changed(cloud.contract, "batching_delay_ms", 100)]
    in_cloud = cloud.faults()
    return {
        (kind, number): fault
        for number, home in enumerate(homes)
        for kind, fault in {**_of_home(home, senders[home.name]), **in_cloud}.items()
        | {"contract-change": ContractChange(home, cloud.put_contract, versions)}.items()
    }


def _of_home(home: Home, sender: Sender) -> dict[str, Fault]:
    faults: dict[str, Fault] = {
        "forwarder-kill": Kill(home.forwarder),
        "forwarder-stop": Freeze(home.forwarder),
        "mosquitto-kill": Kill(home.broker.child),
        "mosquitto-stop": Freeze(home.broker.child),
        "line-cut": Cut(home.link),
        "black-hole": BadWeather(home.link, Weather(silent=True)),
        "slow-line": BadWeather(home.link, SLOW_LINE),
        "narrow-line": BadWeather(home.link, NARROW_LINE),
        "reconnect-storm": ReconnectStorm(home.link),
        "malformed": Malformed(sender),
    }
    if home.disk:
        faults["disk-full"] = FullDisk(home.disk)
    if home.clock:
        faults["clock-jump"] = ClockJump(home.clock.jump)
    return faults


def changed(contract: Contract, setting: str, value: str | int) -> Contract:
    """The same routes, so that what is expected stays the same, with another `setting` of the uplink."""
    document = json.loads(contract.canonical)
    document["participants"]["device"]["outbox"][setting] = value
    return load_compiled(canonical_bytes(document), f"with another {setting}")


def with_order(contract: Contract, services: Sequence[str]) -> Contract:
    """The same contract, in which the inboxes of `services` in the cloud keep the order of each sender.

    Ordered inboxes are not packed.
    """
    document = json.loads(contract.canonical)
    for each in services:
        inbox = document["participants"][each]["inbox"]
        inbox["ordering"] = Ordering.SOURCE
        inbox.pop("events_per_message", None)
    return compile_contract(document, "with order")
