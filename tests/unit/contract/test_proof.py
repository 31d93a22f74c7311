"""`eventplane contract prove`: every alarm has a reader, or an event shows that it has none."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract import filter_search
from contract.proof import Proof, ProofOutcome, prove
from eventplane.contract import Contract
from eventplane.device_reports import HEARTBEAT
from eventplane.envelope import write_event
from eventplane.ledger import TapRecord, to_line
from operations.command_line import main
from tests.plane import shipped_contract
from tests.unit.contract.small import RING, small

BELL = {"participants/bell/sends": [RING]}
FAMILY = {"participants/bell/sends": ["org.example.*"], "participants/bell/outbox": {"priority": "urgent"}}


def proofs(changes: dict[str, Any], image: Contract | None = None) -> list[Proof]:
    return list(prove(small({**BELL, **changes}), [image] if image else []))


def desk(filter: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The desk gets of the cloud's events those that pass `filter`."""
    return {"routes/to-desk/filter": filter, **more}


def sql(text: str) -> dict[str, Any]:
    return desk({"sql": text})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        sql("type LIKE '%.ring.v1' AND EXISTS source"),
        sql(f"(NOT EXISTS room) OR room LIKE 'b%' OR NOT (room LIKE 'b%') OR type = '{RING}'"),
        sql("EXISTS subject OR (NOT EXISTS subject)"),
        sql("((EXISTS time OR (NOT EXISTS time)) AND EXISTS dataschema) OR (NOT EXISTS dataschema)"),
        sql("EXISTS traceparent OR (NOT EXISTS traceparent)"),
        sql(f"type IN ('{RING}', 'another')"),
        desk({"any": [{"exact": {"subject": "a"}}, {"not": {"exact": {"subject": "a"}}}]}),
        desk({"any": [{"prefix": {"subject": "a"}}, {"not": {"prefix": {"subject": "ab"}}}]}),
        desk({"exact": {"senderservice": "bell"}}),
        sql("EXISTS senderdevice"),
        {"event_types/another": {"description": "d"}, "participants/bell/sends": [RING, "another"]},
        FAMILY,
    ],
)
def test_every_alarm_has_a_reader(changes: dict[str, Any]) -> None:
    assert {each.outcome for each in proofs(changes)} == {ProofOutcome.PROVEN}


@pytest.mark.parametrize(
    ("changes", "event"),
    [
        (desk({"prefix": {"type": "com."}}), {}),
        (desk({"exact": {"severitynumber": "17"}}), {}),
        (desk({"all": [{"prefix": {"type": "org."}}, {"not": {"exact": {"room": "b"}}}]}), {"room": "b"}),
        (sql("NOT (subject LIKE '%b_d')"), {}),
        (sql("(NOT EXISTS subject) OR subject != 'bed'"), {"subject": "bed"}),
        # A missing attribute is an error, which passes nothing, and so is what cannot be cast.
        (sql("(NOT EXISTS level) OR level < 5 OR level >= 5"), {"level": "x"}),
        (sql("(NOT EXISTS level) OR level <= 5 OR level > 6"), {"level": "x"}),
        (sql("NOT (room IN ('b', 'c'))"), {}),
        (
            desk({"any": [{"not": {"prefix": {"subject": "b"}}}, {"suffix": {"subject": "d"}}]}),
            {"subject": "b"},
        ),
        # At home the sender's device is not stamped yet.
        ({"routes/up/filter": {"sql": "EXISTS senderdevice"}}, {}),
        ({"routes/to-desk/delivery_guarantee": "best_effort"}, {}),
        ({"participants/desk/retired": True, "routes/to-desk": None}, {}),
        ({"routes/up": None}, {}),
        # The sender itself is no reader.
        (
            {"routes/up": None, "routes/back": {"filter": {"exact": {"type": RING}}, "to": "bell.inbox"}},
            {},
        ),
    ],
)
def test_an_event_without_a_reader(changes: dict[str, Any], event: dict[str, Any]) -> None:
    (proof,) = proofs(changes)
    assert (proof.outcome, bool(proof.reason)) == (ProofOutcome.COUNTER_EXAMPLE, True)
    assert proof.event is not None
    assert proof.event["type"] == RING
    assert proof.event.items() >= event.items()


def test_of_a_family_one_type_may_miss() -> None:
    (ring, family) = proofs({**FAMILY, **desk({"not": {"suffix": {"type": ".fall"}}})})
    assert (ring.outcome, family.outcome) == (ProofOutcome.PROVEN, ProofOutcome.COUNTER_EXAMPLE)
    assert str((family.event or {})["type"]) == "org.example.fall"


FALL = "org.example.fall.v1"
TO_ALL = {"any": [{"prefix": {"type": "org."}}, {"not": {"prefix": {"type": "org."}}}]}
OPEN = {
    "participants/bell": {"kind": "device_service", "description": "d", "outbox": {"priority": "urgent"}},
    "routes/up/filter": TO_ALL,
    "routes/to-desk/filter": TO_ALL,
}


@pytest.mark.parametrize(
    ("image", "changes"),
    [
        # What the type of an event declares counts where its route declares nothing.
        (FAMILY, {f"event_types/{FALL}": {"description": "d", "delivery_guarantee": "best_effort"}}),
        # The cloud gives to others what the image lets everybody send.
        (OPEN, {"participants/desk/sends": [FALL]}),
    ],
)
def test_one_type_of_a_family_is_lost(image: dict[str, Any], changes: dict[str, Any]) -> None:
    found = list(prove(small({**image, **changes}), [small(image)]))
    (lost,) = [each for each in found if each.image == small(image).version and each.event]
    assert (lost.event or {})["type"] == FALL


@pytest.mark.parametrize(
    "changes",
    [
        # Replies and what the plane reports are no alarms of a service.
        {**OPEN, "routes/up/filter": {"not": {"exact": {"type": HEARTBEAT}}}},
        {**FAMILY, "participants/bell/sends": [], "participants/bell/asks": ["org.example.*"]},
        {
            "participants/desk/sends": [FALL],
            "participants/desk/outbox": {"priority": "urgent"},
            "routes/down": {"filter": {"exact": {"type": FALL}}, "to": "device.inbox"},
        },
    ],
)
def test_families_and_urgent_outboxes(changes: dict[str, Any]) -> None:
    assert [each.outcome for each in proofs(changes)] == [ProofOutcome.PROVEN] * 2


def test_another_kind_of_that_name_is_refused() -> None:
    new = {**FAMILY, "participants/bell/kind": "cloud_service", "routes/to-desk/filter": TO_ALL}
    reasons = [each.reason for each in proofs(new, small(FAMILY)) if each.image == small(FAMILY).version]
    assert reasons == ["the cloud refuses it: bell may not send it"] * 2


@pytest.mark.parametrize(
    "filter",
    [
        "(NOT EXISTS subject) OR LENGTH(subject) > 0",
        "(NOT EXISTS room) OR room = room",
        "(NOT EXISTS room) OR room LIKE 'a%' OR NOT (room LIKE 'a%') OR room < 5",
        "(NOT EXISTS time) OR time LIKE '%-%' OR NOT (time LIKE '%-%')",
        "(NOT EXISTS devicesequence) OR devicesequence LIKE '%'",
        "(NOT EXISTS uptimelimit) OR uptimelimit LIKE '%'",
    ],
)
def test_undecided_says_why(filter: str) -> None:
    (proof,) = proofs(sql(filter))
    assert proof.outcome is ProofOutcome.UNDECIDED
    assert proof.reason


@pytest.mark.parametrize("limit", ["MAX_STATES", "MAX_LOOKS"])
def test_too_much_work_is_undecided(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_search, limit, 3)
    (proof,) = proofs(sql("(NOT EXISTS subject) OR subject LIKE '%a%b%' OR NOT (subject LIKE '%a%b%')"))
    assert proof.outcome is ProofOutcome.UNDECIDED
    assert "more than 3" in proof.reason


def test_an_image_that_keeps_alarms_at_home() -> None:
    image = small({**BELL, "routes/up": None})
    found = proofs({}, image)
    assert [(each.image == image.version, each.outcome) for each in found] == [
        (False, ProofOutcome.PROVEN),
        (True, ProofOutcome.COUNTER_EXAMPLE),
    ]


def test_the_cloud_refuses_what_an_image_sends() -> None:
    image = small(BELL)
    shop = {"kind": "cloud_service", "description": "d", "sends": [RING]}
    found = proofs({"participants/bell/sends": [], "participants/shop": shop}, image)
    assert found[0].reason == "the cloud refuses it: bell may not send it"
    # What the shop sends itself meets the cloud's routes alone.
    assert [(each.sender, each.outcome) for each in found[1:]] == [("shop", ProofOutcome.PROVEN)]


def test_the_shipped_contract_is_proven(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contract", "prove", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["contract"] == shipped_contract().version
    assert [each["outcome"] for each in document["proofs"]] == ["proven"] * 3


def test_a_gap_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new.json"
    file.write_bytes(small({**BELL, **desk({"exact": {"subject": "door"}})}).canonical)
    assert main(["contract", "prove", "--contract", str(file), "--image", str(file)]) == 1
    out = capsys.readouterr().out
    assert "counter_example" in out
    assert '"type": "org.example.ring.v1"' in out
    assert main(["contract", "prove", "--contract", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err


def test_a_contract_without_alarms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "calm.json"
    file.write_bytes(small({f"event_types/{RING}/priority": "normal"}).canonical)
    assert main(["contract", "prove", "--contract", str(file)]) == 0
    assert "no service sends alarms" in capsys.readouterr().out


def beat(thing: str, image: str, contract: str, source: str = "") -> str:
    """Return the tap's row of a heartbeat of `thing`."""
    attributes = {"id": thing, "source": source or f"/devices/{thing}/forwarder", "type": HEARTBEAT}
    event = write_event(attributes, {"interval_s": 60, "figures": {"image": image, "contract": contract}})
    return to_line(TapRecord(1, 1, thing, "t", "m", 0, event.json, None, None))


Prove = Callable[..., int]


@pytest.fixture
def prove_day(tmp_path: Path) -> Prove:
    """Prove the small contract for what lines of the tap report."""
    file = tmp_path / "new.json"
    file.write_bytes(small(BELL).canonical)
    words = ["contract", "prove", "--contract", str(file), "--archive", str(tmp_path), "--json"]
    tap = tmp_path / "tap/date=2026-01-01/hour=12/one.json.gz"
    tap.parent.mkdir(parents=True)

    def run(*lines: str) -> int:
        tap.write_bytes(gzip.compress("".join(f"{each}\n" for each in lines).encode()))
        return main([*words, *(["--date", "2026-01-01"] if lines else [])])

    return run


def test_images_that_devices_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], prove_day: Prove
) -> None:
    """Heartbeats tell of an image that keeps alarms at home, and of one that nobody has."""
    new, silent = small(BELL), small({**BELL, "routes/up": None})
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / f"{silent.version}.json").write_bytes(silent.canonical)
    beats = [
        beat("home-1", silent.version, new.version),
        beat("home-2", "0123456789abcdef", new.version),
        beat("home-3", "fedcba9876543210", new.version, source="/of/a/service"),
        beat("home-4", new.version, "").replace("figures", "others"),
    ]
    assert prove_day(*beats) == 1
    printed = capsys.readouterr()
    found = [(each["image"], each["outcome"]) for each in json.loads(printed.out)["proofs"]]
    assert found == [
        (new.version, "proven"),
        (silent.version, "counter_example"),
        ("0123456789abcdef", "undecided"),
    ]
    assert "could not be read" in printed.err
    assert prove_day() == 2
    assert "Add --date DAY" in capsys.readouterr().err


@pytest.mark.parametrize(
    "figures", ["null", '{"image": 5}', '{"image": "../new"}', '{"image": "a\\u0000b"}', '"image"']
)
def test_nonsense_of_a_device_is_named(
    figures: str, capsys: pytest.CaptureFixture[str], prove_day: Prove
) -> None:
    version = small(BELL).version
    event = json.dumps(
        {"id": "1", "source": "/devices/home-2/forwarder", "type": HEARTBEAT, "specversion": "1.0"}
    )
    event = event.replace("}", f', "data": {{"figures": {figures}}}}}')
    nonsense = to_line(TapRecord(1, 1, "home-2", "t", "m", 0, event, None, None))
    assert prove_day(nonsense, beat("home-1", version, "")) == 3
    assert "could not be read" in capsys.readouterr().err


def test_a_day_without_reports_proves_nothing(capsys: pytest.CaptureFixture[str], prove_day: Prove) -> None:
    service = beat("home-1", small(BELL).version, "", source="/of/a/service")
    assert prove_day(service) == 2
    assert "no device reported a contract on 2026-01-01" in capsys.readouterr().err
