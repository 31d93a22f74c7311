"""Items that 0.3.0 wrote, recorded from its code, are read as today's records."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from eventplane.contract import Downlink
from eventplane.contract.publication import CONTRACT, HEAD, Head, PublishedContract
from eventplane.contract.subscription import Subscription
from eventplane.contract.subscription_table import SUBSCRIPTION
from eventplane.downlink.desired import Deletion, Desired, Identity, Message, State
from eventplane.downlink.table import DESIRED
from eventplane.fleet import REGISTRY, Device, LifecycleState
from eventplane.interest.table import ANNOUNCEMENT, PUBLISHED, AnnouncementItem, PublishedFilters
from eventplane.presence import (
    PRESENCE,
    DeviceState,
    Flood,
    Heartbeat,
    Incident,
    Level,
    Line,
    Quiet,
    QuietReason,
    Sighting,
)
from eventplane.records import UNCOUNTED, MemoryTables, RecordKind, Records
from eventplane.traffic import Traffic
from eventplane_client.dynamodb import CLAIM, Claim
from eventplane_client.dynamodb_log import ENTRY, Entry
from eventplane_client.dynamodb_table import EPOCH, POSITION, Epoch, Position

AT_S = 1_767_225_600
AT_MS = 1_000 * AT_S
EVENT = '{"specversion":"1.0","id":"e1","source":"/carers","type":"t"}'
OLD = {"revision": UNCOUNTED}
READER = {"session_id": "0123456789abcdef", "lease_until": AT_S, "expires": 1_768_435_200}


def message(version: int, uid: str = "u1", **more: Any) -> Message:
    names = {"sender": "carers", "source": "/carers", "id": f"e{version}", "text": EVENT}
    return Message(uid=uid, version=version, is_deleted=False, **names, **more)


KINDS: dict[str, tuple[RecordKind[Any], list[Any]]] = {
    "desired": (
        DESIRED,
        [
            Desired(
                thing="home-1",
                key="threshold/home/pulse",
                kind=Downlink.STATE,
                owner="carers",
                reset=7,
                message=message(12),
                state=State.SENDING,
                attempts=2,
                sent=Identity(11, "carers", "/carers", "e11"),
                deletes=(Deletion("u0", 3), Deletion("u2", 9)),
                recent=("0123456789abcdef",),
                last_order=5,
                acknowledged_uid="u1",
                acknowledged_version=10,
                epoch="life-1",
                fence=4,
                due_at_ms=AT_MS,
                revision=9,
            ),
            Desired(
                thing="home-1",
                key="message/home/note",
                kind=Downlink.COMMAND,
                message=message(1, order=9, expires_at_ms=AT_MS),
                waiting=(message(2), message(3, uid="")),
                last_order=9,
                revision=1,
            ),
            Desired(thing="home-2", key="a/b/c", kind=Downlink.STATE, revision=1),
        ],
    ),
    "fleet": (
        REGISTRY,
        [
            Device(
                thing="home-1",
                state=LifecycleState.QUARANTINED,
                changed_at_ms=2,
                since_ms=1,
                certificate="a" * 64,
                pending="b" * 64,
                replaced=frozenset({"c" * 64}),
                registrations=3,
                day=20_454,
                registered_today=1,
                replacement_until_ms=9,
                reason="stolen",
                groups=frozenset({"north", "pilot"}),
                suspended=frozenset({"a" * 64}),
                before=LifecycleState.PROVISIONED,
                revision=4,
            ),
            Device(thing="home-2", state=LifecycleState.MADE, changed_at_ms=1, since_ms=1, revision=1),
        ],
    ),
    "presence": (
        PRESENCE,
        [
            DeviceState(
                "home-1",
                revision=5,
                due_ms=AT_MS,
                sighting=Sighting(Line.DISCONNECTED, AT_MS - 100_000, 3, "session-3", "CONNECTION_LOST"),
                heartbeat=Heartbeat(AT_MS - 200_000, 300.0, 1.5, 0.0, "epoch", "000000000012"),
                reported=Line.CONNECTED,
                reported_ms=AT_MS - 600_000,
                quiet=Quiet(QuietReason.NO_HEARTBEAT, AT_MS - 300_000),
                incident=Incident("i1", Level.QUIET, "no_heartbeat"),
                traffic=Traffic(7, 1_001),
                flood=Flood(AT_MS - 400_000, 7),
                unsent=('{"specversion":"1.0","id":"1","source":"/s","type":"t"}',),
            ),
            DeviceState("home-2", revision=1, sighting=Sighting(Line.CONNECTED, 1, 0, "s")),
            DeviceState("home-3", revision=1, is_gone=True),
        ],
    ),
    "heads": (
        HEAD,
        [
            Head("0123456789abcdef", "fedcba9876543210", previous, "2026-01-01T00:00:00Z")
            for previous in ("0000000000000001", None)
        ],
    ),
    "contracts": (
        CONTRACT,
        [PublishedContract("fedcba9876543210", b"\x78\x9c\x03\x00\x00\x00\x00\x01", **OLD)],
    ),
    "subscriptions": (
        SUBSCRIPTION,
        [
            Subscription("carers", name, '{"exact":{"type":"t"}}', "2026-01-01T00:00:00Z", document)
            for name, document in (("news", '{"sink":"x"}'), ("old", ""))
        ],
    ),
    "interest": (
        ANNOUNCEMENT,
        [
            AnnouncementItem(
                participant="carers",
                announcer=announcer,
                filters='[{"exact":{"type":"t"}}]',
                expires=AT_S,
                announced=announced,
                **OLD,
            )
            for announcer, announced in (("one", AT_MS - 300_000), ("two", 0))
        ],
    ),
    "published": (PUBLISHED, [PublishedFilters(AT_MS, "d" * 64), PublishedFilters(AT_MS)]),
    "claims": (
        CLAIM,
        [
            Claim(reader="carers/6b", event="6b" * 16, is_done=True, **READER, **OLD),
            Claim(reader="carers/6b", event="6c" * 16, is_done=True, expires=READER["expires"], **OLD),
        ],
    ),
    "entries": (
        ENTRY,
        [
            Entry(
                reader="carers/log",
                event="0000000000000001",
                claimed=b"k" * 16,
                done=b"d" * 16,
                released=b"r" * 16,
                **READER,
                **OLD,
            ),
            Entry(reader="carers/log", event="0000000000000002", **READER, **OLD),
        ],
    ),
    "epochs": (
        EPOCH,
        [Epoch(reader="carers/epochs", event="ab" * 32, epoch="life-1", expires=1_768_435_200, **OLD)],
    ),
    "positions": (
        POSITION,
        [
            Position(reader="carers/positions", event="cd" * 32, reached=12, **OLD),
            Position(reader="carers/positions", event="ce" * 32, reached=12, expires=1_768_435_200, **OLD),
        ],
    ),
}


def _binary(members: dict[str, Any]) -> Any:
    return base64.b64decode(members["base64"]) if "base64" in members else members


ITEMS = json.loads(Path(__file__).with_name("items-0.3.0.json").read_text(), object_hook=_binary)


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_is_read_as_a_record_and_written_over(name: str) -> None:
    kind, expected = KINDS[name]
    for item, record in zip(ITEMS[name], expected, strict=True):
        tables = MemoryTables()
        key = kind.key_in(item)
        tables.put("t", key, item, None)
        store: Records[Any] = Records(tables, "t", kind)
        found = store.read(*(item[each]["S"] for each in kind.key))
        assert found == record
        stored = store.write(found)
        assert stored is not None
        assert store.read(*(item[each]["S"] for each in kind.key)) == stored
        assert store.write(found) is None
