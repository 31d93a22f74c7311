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
    Ordering,
    compile_contract,
    contract_document,
    load_compiled,
)

GOLDEN = Path(__file__).parent / "golden" / "format-1.json"
GOLDEN_VERSION = "d17fe94bbe13b478"


def test_a_contract_of_format_1_is_readable_for_ever() -> None:
    raw = GOLDEN.read_bytes()
    contract = load_compiled(raw)
    assert contract.version == GOLDEN_VERSION == hashlib.sha256(raw).hexdigest()[:16]
    assert contract.canonical == raw
    assert [route.name for route in contract.routes] == ["to-bell", "to-desk", "up"]
    assert contract.channel("desk.inbox").ordering is Ordering.SOURCE
    assert contract.channel("desk.outbox").delivery_guarantee is DeliveryGuarantee.BEST_EFFORT
    assert contract.channel("bell.inbox").receipts


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
    document = json.loads(GOLDEN.read_bytes()) | {"format": 2, "something": "new"}
    with pytest.raises(ContractFormatError, match="update the program") as caught:
        load_compiled(json.dumps(document), "device.json")
    assert (caught.value.found, caught.value.readable) == (2, 1)
    assert len(caught.value.problems) == 1
    assert "device.json" in str(caught.value)


def test_a_newer_format_in_the_file_people_write_is_the_same_error(tmp_path: Path) -> None:
    file = tmp_path / "plane.yaml"
    file.write_text("format: 2\nname: a\nname: b\n")
    with pytest.raises(ContractFormatError):
        load_contract(file)


@pytest.mark.parametrize("text", ["[", "[]", '{"format":1,"name":"\\ud800"}', "[" * 100_000])
def test_what_is_damaged_is_refused(text: str) -> None:
    with pytest.raises(ContractError):
        load_compiled(text)


def test_todays_document_of_a_contract_compiles_to_it() -> None:
    contract = load_contract()
    assert compile_contract(contract_document(contract), "again") == contract
