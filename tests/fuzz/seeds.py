"""Good bytes for each reader, from which a fuzzer starts."""

import json
from collections.abc import Iterable
from pathlib import Path

from contract.loader import CONTRACT_FILE, load_contract
from eventplane.batch import pack
from eventplane.dead_letter import Refusal, dead_letter
from eventplane.envelope import write_event
from eventplane.ingest import IngestFrame, frame_text
from eventplane.ledger import LedgerRecord, tap_records, to_line
from eventplane.reasons import Outcome
from eventplane.receipts import Receipt, digest, write_receipts
from lab.benchmarks import workload
from lab.mosquitto import PROFILE
from tests.fuzz.targets import DEVICE_REPORTS, GOOD_EVENTS, good_spool
from tests.odd_profiles import ODD_PROFILES
from tests.plane import shipped_contract
from tests.unit.eventplane_mqtt import broker_packets as broker
from tests.unit.glue_jobs.home import Home

_EVENT = write_event(
    {
        "id": "1",
        "source": "/homes/1/s",
        "type": "org.example.ring.v1",
        "time": "2026-01-01T00:00:00Z",
        "sequence": "7",
        "traceparent": f"00-{1:032x}-{1:016x}-01",
    },
    {"value": 1.5, "text": "Zoë", "list": [None, True]},
)
_LETTER = dead_letter(
    id="2",
    source="/r",
    time="2026-01-01T00:00:00Z",
    refusal=Refusal("not_json", "no"),
    channel="device.outbox",
    original=b"{}",
    contract_version="v",
)
_SMALL = Path(__file__).parents[2] / "docs" / "examples" / "doorbell.yaml"
_FRAME = IngestFrame(pack([_EVENT, _LETTER]), "devices/d/outbox", "d", "p", 1)
_EXPRESSIONS = (
    "type = 'a' AND (i > -2147483648 OR EXISTS s) XOR NOT b",
    "LEFT(s, 2) IN ('1', id) AND source LIKE '/\\\\_%'",
    "INT(s) * 3 / 0 % 2 <> ABS(i) + LENGTH(CONCAT_WS('-', 'x', s))",
    "BOOL('yes') OR SUBSTRING('abc', 1, 2) < TRIM(\" x \")",
)


def seeds(target: str) -> Iterable[bytes]:
    """The seeds of a target."""
    return _SEEDS[target]


def _archive() -> bytes:
    record = LedgerRecord(
        1, 1, "device.outbox", "v", "/homes/1/s", "1", "t", "normal", "d", "r", "c.inbox",
        Outcome.DEAD_LETTERED, "not_json", 1, "m",
    )  # fmt: skip
    tap = "\n".join(map(to_line, tap_records(_FRAME, "m", 1)))
    return f"\0{to_line(record)}\f{tap}".encode()


def _reports() -> bytes:
    """Reports of a device of each type; the byte before each is one of its type."""
    home = Home().live("start, expire 3, manifest").live("send 1, manifest final=True")
    texts = [each.report[2::5] for each in home.events if each.report]
    return b"\f".join(b"%c%s" % (DEVICE_REPORTS.index(type) + 15, text.encode()) for type, text in texts)


_SEEDS: dict[str, list[bytes]] = {
    "envelope": [_EVENT.json.encode(), _LETTER.json.encode()],
    "batch": [pack([_EVENT, _LETTER]), f"[{_EVENT.json}]".encode(), _EVENT.json.encode()],
    "fast-reader": [
        _EVENT.json.encode(),
        workload.event(1),
        *GOOD_EVENTS,
        json.dumps(json.loads(_EVENT.json)).encode(),
    ],
    "cesql": [each.encode() for each in _EXPRESSIONS],
    "contract": [load_contract(_SMALL).canonical, shipped_contract().canonical],
    "contract-file": [_SMALL.read_bytes(), CONTRACT_FILE.read_bytes()],
    "receipts": [write_receipts([Receipt(digest(b"a")), Receipt(digest(b"b"), "spool_full")])],
    "frame": [frame_text(_FRAME).encode(), json.dumps({"data": "bm8="}).encode()],
    "mqtt": [
        b"\xff"
        + broker.connack(4)
        + broker.suback(1, b"\1")
        + broker.publish(b"t", b"x", 1, 4)
        + broker.PINGRESP,
        b"\x07" + broker.connack(5) + broker.suback(1, b"\1", 5) + broker.publish(b"t", b"x", 1, 5),
    ],
    "spool": [b"\0" + b"\0\x10\0ab" * 3, b"\1" + good_spool()],
    "archive": [_archive()],
    "device": [_reports().split(b"\f")[1], _reports()],
    "profile": [PROFILE.read_bytes(), *(each.text.encode() for each in ODD_PROFILES)],
}
