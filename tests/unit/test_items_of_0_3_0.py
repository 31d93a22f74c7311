"""Items that 0.3.0 wrote, recorded from its code (`then`), are read as today's records (`now`)."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from eventplane.contract.publication import CONTRACT, HEAD
from eventplane.contract.subscription_table import SUBSCRIPTION
from eventplane.device_record import REGISTRY
from eventplane.downlink.table import DESIRED
from eventplane.interest.table import ANNOUNCEMENT, PUBLISHED
from eventplane.presence import PRESENCE
from eventplane.records import Item, RecordError, RecordKind, Records
from eventplane_aws.tables import WRITER
from eventplane_client.dynamodb_duplicates import CLAIM, EPOCH, POSITION
from lab.histories.story import OLD
from tests.fakes.tables import MemoryTables

KINDS: dict[str, RecordKind[Any]] = {
    "claims": CLAIM,
    "contracts": CONTRACT,
    "desired": DESIRED,
    "epochs": EPOCH,
    "fleet": REGISTRY,
    "heads": HEAD,
    "interest": ANNOUNCEMENT,
    "positions": POSITION,
    "presence": PRESENCE,
    "published": PUBLISHED,
    "subscriptions": SUBSCRIPTION,
}


def _binary(members: dict[str, Any]) -> Any:
    return base64.b64decode(members["base64"]) if "base64" in members else members


ITEMS = json.loads(Path(__file__).with_name("items-0.3.0.json").read_text(), object_hook=_binary)


@pytest.mark.parametrize("name", KINDS)
def test_an_item_is_read_as_a_record_and_written_over_once(name: str) -> None:
    kind = KINDS[name]
    for item in ITEMS[name]:
        tables, key = MemoryTables(), kind.key_in(item["then"])
        tables.put("t", key, item["then"], None)
        store: Records[Any] = Records(tables, "t", kind)
        names = [each["S"] for each in key.values()]
        found = store.read(*names)
        assert kind.to_item(found) == item["now"]
        # 0.3.0 runs beside this version during a deployment by shares, and may require all that it wrote.
        assert _types(item["now"]).items() >= _types(item["then"]).items()
        assert store.write(found) == store.read(*names)
        assert store.write(found) is None


@pytest.mark.parametrize("table", OLD)
def test_histories_take_from_items_only_what_0_3_0_did_not_write(table: str) -> None:
    unknown = {name for each in ITEMS[table] for name in each["now"].keys() - each["then"].keys()}
    assert {*OLD[table]} <= unknown | {WRITER}


def _types(item: Item) -> dict[str, str]:
    return {name: type for name, value in item.items() for type in value}


def test_an_item_under_a_foreign_sort_key_is_no_desired_state() -> None:
    with pytest.raises(RecordError):
        DESIRED.from_item({"thing": {"S": "home-1"}, "sk": {"S": "other"}})
