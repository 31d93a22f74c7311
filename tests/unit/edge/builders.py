"""Builders of what tests of the forwarder start from: spools, downlink messages, statuses."""

from base64 import b85encode
from collections.abc import Iterable, Mapping
from glob import escape
from pathlib import Path
from random import Random
from typing import Any

from edge.health_status import Backlog, DeviceStatus, LinkState
from edge.spool import BEFORE_EVERYTHING, Delivery, DeviceState, StoredEvent
from edge.spool.store import Spool
from eventplane.contract import Downlink, Priority
from eventplane.downlink.device import StateVersion
from eventplane.downlink.wire import stamped
from eventplane.envelope import write_event
from eventplane_mqtt.mailbox import LinkName
from tests.unit.edge.fakes import READING

KEY = "setting/climate/threshold"


def state(
    version: int,
    key: str = KEY,
    *,
    deleted: bool = False,
    data: Any = None,
    type: str = READING,
    id: str = "",
    fence: int = 1,
    reset: int = 0,
    **attributes: Any,
) -> str:
    """Version `version` of a state; its subject leads it to the display."""
    attributes = {**_names(id or f"v{version}", type), **attributes}
    return stamped(
        write_event(attributes, data).json,
        kind=Downlink.STATE,
        key=key,
        uid="",
        version=version,
        is_deleted=deleted,
        order=0,
        fence=fence,
        reset=reset,
    )


def command(order: int, key: str = "command/app/ring", *, type: str = READING, **attributes: Any) -> str:
    """The command number `order` of a key."""
    attributes = {**_names(f"c{order}", type), **attributes}
    return stamped(
        write_event(attributes).json,
        kind=Downlink.COMMAND,
        key=key,
        uid="",
        version=1,
        is_deleted=False,
        order=order,
        fence=1,
    )


def _names(id: str, type: str) -> dict[str, Any]:
    return {"id": id, "source": "/app", "type": type, "subject": "show", "senderservice": "app"}


CLOUD, HOME = "device.outbox", "call.inbox"


def key(sequence: int) -> bytes:
    return sequence.to_bytes(16, "big")


def arrival(
    sequence: int,
    rank: int = 1,
    to: Iterable[str] | Mapping[str, int | None] = (CLOUD,),
    json: str = "{}",
) -> StoredEvent:
    destinations = to if isinstance(to, Mapping) else dict.fromkeys(to)
    return StoredEvent(sequence, rank, json, destinations, key(sequence))


def device_state(
    key: str,
    version: int = 1,
    json: str = "{}",
    *,
    kind: str = "state",
    deleted: bool = False,
    sequence: int = 0,
    reset: int = 0,
) -> DeviceState:
    held = StateVersion(
        reset=reset,
        version=version,
        is_deleted=deleted,
        order=0,
        sender="app",
        source="/app",
        id=f"v{version}",
    )
    return DeviceState(kind, key, held, 1, sequence, json)


def cloud(sequence: int) -> Delivery:
    return Delivery(CLOUD, 1, sequence)


def fill(spool: Spool, count: int, size: int = 500, a_commit: int = 50) -> None:
    """Store `count` events of `size` bytes for the cloud."""
    for first in range(0, count, a_commit):
        start = spool.next_sequence
        arrivals = [
            arrival(start + n, json=_text(start + n, size)) for n in range(min(a_commit, count - first))
        ]
        spool.commit(arrivals, uptime_ms=spool.clock())


def waiting(spool: Spool, destination: str = CLOUD, rank: int = 1, at_once: int = 1000) -> list[str]:
    """The texts of all that waits, in order, read in pieces."""
    after, found = BEFORE_EVERYTHING, []
    while rows := spool.read(destination, rank, after, at_once):
        assert len(rows) <= at_once
        found += [each.json for each in rows]
        after = rows[-1].delivery.sequence
    return found


def beside(path: Path, suffix: str) -> list[Path]:
    """The files beside a spool whose names go on with `suffix`."""
    return sorted(path.parent.glob(f"{escape(path.name)}{suffix}*"))


def noise(characters: int, seed: int = 0) -> str:
    """Text that compression hardly shortens."""
    return b85encode(Random(seed).randbytes(characters)).decode()[:characters]


def _text(sequence: int, size: int) -> str:
    # In base 85 no character needs an escape in JSON.
    head = f'{{"n":{sequence},"noise":"'
    return f'{head}{noise(max(0, size - len(head) - 2), sequence)}"}}'


WELL = DeviceStatus(
    thing="home-1",
    contract_version="c0ffee",
    uptime_s=100.0,
    pressure=0.1,
    links={each: LinkState(each, True, 1_000.0, 1) for each in LinkName},
)


def with_link(
    status: DeviceStatus, name: LinkName, up: bool = True, for_s: float = 1_000.0, **more: Any
) -> DeviceStatus:
    return status._replace(links={**status.links, name: LinkState(name, up, for_s, 1, **more)})


def backlog(
    oldest_s: float,
    priority: Priority = Priority.URGENT,
    destination: str = "device.outbox",
    link: LinkName | None = LinkName.CLOUD,
) -> Backlog:
    return Backlog(destination, priority, link, 3, oldest_s)
