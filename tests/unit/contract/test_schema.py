"""The JSON Schema of the contract's file agrees with the compiler about its shape."""

import json
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from contract import CONTRACT_FILE
from contract.schema import contract_schema
from eventplane.contract import ContractError, ParticipantKind, compile_contract
from eventplane.contract.channels import SETTINGS
from tests.unit.contract.small import document, small
from tests.unit.contract.test_contract import FAULTS

ROOT = Path(__file__).parents[3]
CONTRACTS = [
    CONTRACT_FILE,
    ROOT / "docs" / "examples" / "doorbell.yaml",
    ROOT / "docs" / "examples" / "smart-home" / "event_plane.yaml",
    ROOT / "contract" / "project" / "contract" / "event_plane.yaml.in",
    *sorted((Path(__file__).parent / "golden").glob("*.json")),
]
VALIDATOR = jsonschema.Draft202012Validator(contract_schema())


def faults(written: Any) -> list[str]:
    return [each.json_path for each in VALIDATOR.iter_errors(written)]


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(VALIDATOR.schema)


@pytest.mark.parametrize("file", CONTRACTS, ids=lambda file: file.name)
def test_a_valid_contract_is_valid(file: Path) -> None:
    written = yaml.safe_load(file.read_text().replace("@NAME@", "care-bell"))
    assert faults(written) == []


BEYOND = """
event_types.org.eventplane.deadletter.v1.delivery_guarantee
event_types.org.eventplane.device.manifest.v1.delivery_guarantee
event_types.org.eventplane.notice.carer.v1.delivery_guarantee
event_types.org.example.ring.v1.delivery_guarantee
event_types.org.example.ring.v1.schemas
participants
participants.a1
participants.bell.inbox.events_per_message
participants.bell.outbox.batching_delay_ms
participants.desk-replies
participants.desk-webhook
participants.desk.inbox.batching_delay_ms
participants.desk.inbox.events_per_message
participants.desk.inbox.give_up_after_s
participants.desk.inbox.ordering
participants.desk.inbox.transport
participants.desk.inbox.webhook.give_up_after_s
participants.desk.may_subscribe.sql
participants.desk.outbox.events_per_message
participants.desk.outbox.ordering
participants.device
participants.device-inbox
participants.device-urgent
participants.device.inbox.delivery_guarantee
participants.device.outbox.ordering
participants.downlink.inbox.events_per_message
participants.downlink.outbox.delivery_guarantee
participants.eventplane
participants.ingest
participants.ingest-errors
participants.nnnnnnnnnnnnnnnnnnnnnnnnnnn
participants.replay
participants.services
participants.subscribers.inbox.transport
participants.tables
participants.tap
participants.urgent-ingest
participants.urgentingest
routes
routes.down.delivery_guarantee
routes.down.to
routes.replies-to-bell
routes.to-desk.delivery_guarantee
routes.to-desk.to
routes.x.to
"""
"""Places of the faults that follow from several members, from names, or from an expression."""


def test_every_fault_of_shape_is_refused() -> None:
    assert faults(document()) == []
    beyond = [path for changes, path, _ in FAULTS if not faults(document(changes))]
    assert {each.partition("[")[0] for each in beyond} == set(BEYOND.split())


@pytest.mark.parametrize("name", SETTINGS)
def test_an_editor_shows_meaning_and_default(name: str) -> None:
    for kind in ParticipantKind:
        for box in ("inbox", "outbox"):
            shown = VALIDATOR.schema["$defs"][f"{kind}.{box}"]["properties"][name]
            assert shown["description"]
            assert "](" not in shown["description"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("routes/up/filter", {"exact": {"type": "a"}, "sql": "TRUE"}),
        ("routes/up/filter", {"exact": {"Type": "a"}}),
        ("routes/up/filter", {"all": []}),
        ("routes/up/to", "bell"),
        ("participants/bell/outbox/prioritaet", "urgent"),
        ("participants/desk/inbox/receipts_percent", 101),
    ],
)
def test_an_editor_marks_it(path: str, value: Any) -> None:
    assert faults(document({path: value})) != []
    with pytest.raises(ContractError):
        small({path: value})


RICH = {
    "participants/desk/asks": ["org.example.*"],
    "participants/desk/may_address": ["group-1"],
    "participants/desk/may_subscribe": {"not": {"suffix": {"type": "x"}}},
    "participants/desk/inbox": {"webhook": {"timeout_s": 3}, "expiry_s": 1, "priority": "low"},
    "participants/desk/retired": False,
    "participants/device/outbox": {"when_full": "refuse", "forward": "all"},
    "participants/device/inbox/downlink": "state",
    "participants/bell/outbox": {"receipts": True, "batching_delay_ms": 5},
    "event_types/more/schemas": [{"$id": "a:1"}],
    "event_types/more/schema_check": "known",
    "routes/up/delivery_guarantee": "at_least_once",
    "routes/up/description": "why",
}
VALUES = (
    None,
    0,
    1,
    10**9,
    1.5,
    "",
    "x",
    "urgent",
    True,
    [],
    ["a.*"],
    [None],
    {},
    {"all": [{"sql": "TRUE"}]},
)


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each member below `document`."""
    for name in (
        document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    ):
        yield (*path, name)
        yield from places(document[name], (*path, name))


@pytest.mark.parametrize("changes", [{"participants/desk/mappings": {}}, {"routes": None}])
def test_what_stands_for_a_default_is_valid(changes: dict[str, Any]) -> None:
    """Without routes there is the one of the replies."""
    changed = document(deepcopy(RICH | changes))
    compile_contract(deepcopy(changed), "changed")
    assert faults(changed) == []


def test_whatever_compiles_is_valid() -> None:
    compiled = 0
    for path in places(document(deepcopy(RICH))):
        for value in VALUES:
            changed = document(deepcopy(RICH))
            *above, last = path
            reduce(getitem, above, changed)[last] = value
            with suppress(ContractError):
                contract = compile_contract(deepcopy(changed), "changed")
                compiled += 1
                assert faults(changed) == [], (path, value)
                assert faults(json.loads(contract.canonical)) == []
    assert compiled > 50
