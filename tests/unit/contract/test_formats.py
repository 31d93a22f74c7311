"""The compiled form lasts: an earlier program's is read, a later one's is refused by name."""

import hashlib
import json
from pathlib import Path

import pytest

from contract import load_contract
from eventplane.contract import (
    ContractError,
    ContractFormatError,
    DeliveryGuarantee,
    Downlink,
    Ordering,
    SchemaCheck,
    Webhook,
    WebhookMode,
    WhenFull,
    compile_contract,
    contract_document,
    load_compiled,
)
from eventplane.contract.canonical import FORMAT
from eventplane.filters import Prefix
from tests.plane import shipped_contract

GOLDEN = Path(__file__).parent / "golden" / "format-1.json"
GOLDEN_VERSION = "d17fe94bbe13b478"
GOLDEN_2 = Path(__file__).parent / "golden" / "format-2.json"
GOLDEN_2_VERSION = "2fcb59749438eb3a"
GOLDEN_3 = Path(__file__).parent / "golden" / "format-3.json"
GOLDEN_3_VERSION = "91c6dbd13b0a77f7"
GOLDEN_4 = Path(__file__).parent / "golden" / "format-4.json"
GOLDEN_4_VERSION = "adffaf63b554f751"
GOLDEN_5 = Path(__file__).parent / "golden" / "format-5.json"
GOLDEN_5_VERSION = "22046cd16ad10196"
GOLDEN_6 = Path(__file__).parent / "golden" / "format-6.json"
GOLDEN_6_VERSION = "31a641cacc622cb3"
GOLDEN_7 = Path(__file__).parent / "golden" / "format-7.json"
GOLDEN_7_VERSION = "614ef53315f62ac9"
GOLDEN_8 = Path(__file__).parent / "golden" / "format-8.json"
GOLDEN_8_VERSION = "f4d03ae975d4fa1d"


@pytest.mark.source("P11")
def test_a_contract_of_format_1_is_readable_for_ever() -> None:
    raw = GOLDEN.read_bytes()
    contract = load_compiled(raw)
    assert contract.version == GOLDEN_VERSION == hashlib.sha256(raw).hexdigest()[:16]
    assert contract.canonical == raw
    assert [route.name for route in contract.routes] == ["to-bell", "to-desk", "up"]
    assert contract.channel("desk.inbox").ordering is Ordering.SOURCE
    assert contract.channel("desk.outbox").delivery_guarantee is DeliveryGuarantee.BEST_EFFORT
    assert contract.channel("bell.inbox").receipts
    # What came later has its defaults.
    assert contract.channel("bell.outbox").when_full is WhenFull.REFUSE
    assert {each.sends for each in contract.participants.values()} == {None}
    ring = contract.event_types["org.example.ring.v1"]
    assert (ring.schemas, ring.schema_check) == (
        {"": {"required": ["door"], "type": "object"}},
        SchemaCheck.NONE,
    )
    assert contract.event_types["org.example.quiet.v1"].schemas == {}


def test_a_contract_of_format_2_is_readable_for_ever() -> None:
    raw = GOLDEN_2.read_bytes()
    contract = load_compiled(raw)
    assert contract.version == GOLDEN_2_VERSION == hashlib.sha256(raw).hexdigest()[:16]
    assert contract.canonical == raw
    assert contract.channel("bell.outbox").when_full is WhenFull.DROP_OLDEST
    assert contract.participants["bell"].sends == ("org.example.ring.v1",)
    ring = contract.event_types["org.example.ring.v1"]
    assert list(ring.schemas) == ["https://schemas.example.org/ring.2", "https://schemas.example.org/ring.1"]
    assert ring.schema_check is SchemaCheck.STRICT


def test_a_contract_of_format_3_is_readable_for_ever() -> None:
    raw = GOLDEN_3.read_bytes()
    contract = load_compiled(raw)
    assert contract.version == GOLDEN_3_VERSION == hashlib.sha256(raw).hexdigest()[:16]
    assert contract.canonical == raw
    assert contract.channel("desk.inbox").webhook == Webhook(WebhookMode.BINARY, 5, 600, 120)


def test_a_contract_of_format_4_is_readable_for_ever() -> None:
    raw = GOLDEN_4.read_bytes()
    contract = load_compiled(raw)
    assert contract.version == GOLDEN_4_VERSION == hashlib.sha256(raw).hexdigest()[:16]
    assert contract.canonical == raw
    assert contract.device.inbox.downlink is Downlink.STATE
    assert contract.downlink("org.example.ring.v1") is Downlink.COMMAND


def test_a_contract_of_format_5_is_readable_for_ever() -> None:
    raw = GOLDEN_5.read_bytes()
    contract = load_compiled(raw)
    assert contract.version == GOLDEN_5_VERSION == hashlib.sha256(raw).hexdigest()[:16]
    assert contract.canonical == raw
    assert contract.participants["bell"].asks == ("org.example.ring.v1",)
    assert "replies-to-bell" in {each.name for each in contract.routes}


def test_a_contract_of_format_6_is_readable_for_ever() -> None:
    raw = GOLDEN_6.read_bytes()
    contract = load_compiled(raw)
    assert contract.version == GOLDEN_6_VERSION == hashlib.sha256(raw).hexdigest()[:16]
    assert contract.canonical == raw
    assert contract.participants["desk"].may_address == ("north", "south")
    assert contract.participants["desk"].may_subscribe == Prefix("type", "org.example.")


def test_a_contract_of_format_7_is_readable_for_ever() -> None:
    raw = GOLDEN_7.read_bytes()
    contract = load_compiled(raw)
    assert contract.version == GOLDEN_7_VERSION == hashlib.sha256(raw).hexdigest()[:16]
    assert contract.canonical == raw
    quiet = contract.event_types["org.example.quiet.v1"]
    assert quiet.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT
    promised = {each.name: each.delivery_guarantee for each in contract.routes}
    assert promised["up"] is DeliveryGuarantee.AT_LEAST_ONCE
    assert promised["to-desk"] is None


def test_a_contract_of_format_8_is_readable_for_ever() -> None:
    raw = GOLDEN_8.read_bytes()
    contract = load_compiled(raw)
    assert contract.version == GOLDEN_8_VERSION == hashlib.sha256(raw).hexdigest()[:16]
    assert contract.canonical == raw
    assert contract.channel("desk.inbox").events_per_message == 250
    assert contract.channel("bell.outbox").batching_delay_ms == 30_000


def test_a_file_of_format_1_is_read_and_compiled_to_todays_form(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "ring.json").write_text('{"required": ["door"]}')
    file = tmp_path / "plane.yaml"
    file.write_text(
        "format: 1\nname: old\n"
        "participants: {home: {kind: device, description: x}}\n"
        "event_types: {ring: {description: x, schema: ring.json}, mute: {description: x, schema: }}\n"
        "routes: {up: {filter: {exact: {type: ring}}, to: home.outbox}}\n"
    )
    contract = load_contract(file)
    assert contract.event_types["ring"].schemas == {"": {"required": ["door"]}}
    assert contract.event_types["mute"].schemas == {}
    assert json.loads(contract.canonical)["format"] == 2
    assert load_compiled(contract.canonical) == contract


def test_the_version_is_of_what_stands_there_so_that_later_settings_do_not_change_it() -> None:
    document = json.loads(GOLDEN.read_bytes())
    for participant in document["participants"].values():
        for box in ("inbox", "outbox"):
            del participant[box]["receipts"]
    earlier = load_compiled(json.dumps(document))
    assert json.loads(earlier.canonical) == document
    assert earlier.version != GOLDEN_VERSION
    assert contract_document(earlier)["participants"]["bell"]["outbox"]["receipts"] is False


def test_layout_does_not_count() -> None:
    assert load_compiled(json.dumps(json.loads(GOLDEN.read_bytes()), indent=2)).version == GOLDEN_VERSION


def test_a_newer_format_is_refused_with_one_named_error() -> None:
    document = json.loads(GOLDEN.read_bytes()) | {"format": FORMAT + 1, "something": "new"}
    with pytest.raises(ContractFormatError, match="update the program") as caught:
        load_compiled(json.dumps(document), "device.json")
    assert (caught.value.found, caught.value.readable) == (FORMAT + 1, FORMAT)
    assert len(caught.value.problems) == 1
    assert "device.json" in str(caught.value)


def test_a_newer_format_in_the_file_people_write_is_the_same_error(tmp_path: Path) -> None:
    file = tmp_path / "plane.yaml"
    file.write_text(f"format: {FORMAT + 1}\nname: a\nname: b\n")
    with pytest.raises(ContractFormatError):
        load_contract(file)


@pytest.mark.parametrize("text", ["[", "[]", '{"format":1,"name":"\\ud800"}', "[" * 100_000])
def test_what_is_damaged_is_refused(text: str) -> None:
    with pytest.raises(ContractError):
        load_compiled(text)


def test_todays_document_of_a_contract_compiles_to_it() -> None:
    contract = shipped_contract()
    assert compile_contract(contract_document(contract), "again") == contract
