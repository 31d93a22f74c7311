"""Compiled contracts of the formats of 0.3.0 are readable; one of a later format is refused by name."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from contract import load_contract
from eventplane.contract import (
    Contract,
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
from eventplane.contract.canonical import FORMAT, OLDEST_FORMAT
from eventplane.filters import Prefix

GOLDEN = Path(__file__).parent / "golden"
RING, QUIET = "org.example.ring.v1", "org.example.quiet.v1"
IDS = [f"https://schemas.example.org/ring.{each}" for each in (2, 1)]

VERSIONS: dict[int, tuple[str, Callable[[Contract], object], object]] = {
    2: (
        "2fcb59749438eb3a",
        lambda it: (
            [each.name for each in it.routes],
            it.channel("desk.inbox").ordering,
            it.channel("desk.outbox").delivery_guarantee,
            it.channel("bell.inbox").receipts,
            it.channel("bell.outbox").when_full,
            it.participants["bell"].sends,
            list(it.event_types[RING].schemas),
            it.event_types[RING].schema_check,
        ),
        (
            ["to-bell", "to-desk", "up"],
            Ordering.SOURCE,
            DeliveryGuarantee.BEST_EFFORT,
            True,
            WhenFull.DROP_OLDEST,
            (RING,),
            IDS,
            SchemaCheck.STRICT,
        ),
    ),
    3: (
        "91c6dbd13b0a77f7",
        lambda it: (it.channel("desk.inbox").webhook, it.channel("desk.inbox").give_up_after_s),
        (Webhook(WebhookMode.BINARY, 5, 120), 600),
    ),
    4: (
        "adffaf63b554f751",
        lambda it: (it.device.inbox.downlink, it.downlink(RING)),
        (Downlink.STATE, Downlink.COMMAND),
    ),
    5: (
        "22046cd16ad10196",
        lambda it: (it.participants["bell"].asks, "replies-to-bell" in {each.name for each in it.routes}),
        ((RING,), True),
    ),
    6: (
        "31a641cacc622cb3",
        lambda it: (it.participants["desk"].may_address, it.participants["desk"].may_subscribe),
        (("north", "south"), Prefix("type", "org.example.")),
    ),
    7: (
        "614ef53315f62ac9",
        lambda it: (
            it.event_types[QUIET].delivery_guarantee,
            {each.name: each.delivery_guarantee for each in it.routes if each.name in ("up", "to-desk")},
        ),
        (DeliveryGuarantee.BEST_EFFORT, {"up": DeliveryGuarantee.AT_LEAST_ONCE, "to-desk": None}),
    ),
    8: (
        "f4d03ae975d4fa1d",
        lambda it: (it.channel("desk.inbox").events_per_message, it.channel("bell.outbox").batching_delay_ms),
        (250, 30_000),
    ),
    9: ("441c9b5a5717d943", lambda it: it.channel("bell.inbox").give_up_after_s, 7_200),
}
"""Of each format the version of its golden contract, and what was new in it."""


def golden(number: int) -> bytes:
    return (GOLDEN / f"format-{number}.json").read_bytes()


@pytest.mark.source("P11")
@pytest.mark.parametrize("number", range(OLDEST_FORMAT, FORMAT + 1))
def test_a_contract_of_every_format_is_readable(number: int) -> None:
    raw = golden(number)
    contract = load_compiled(raw)
    version, read, expected = VERSIONS[number]
    assert contract.version == version == hashlib.sha256(raw).hexdigest()[:16]
    assert contract.canonical == raw
    assert read(contract) == expected
    # Layout does not count.
    assert load_compiled(json.dumps(json.loads(raw), indent=2)).version == version


def test_later_settings_keep_old_versions() -> None:
    document = json.loads(golden(2))
    for participant in document["participants"].values():
        for box in ("inbox", "outbox"):
            del participant[box]["receipts"]
    earlier = load_compiled(json.dumps(document))
    assert json.loads(earlier.canonical) == document
    assert earlier.version != VERSIONS[2][0]
    assert contract_document(earlier)["participants"]["bell"]["outbox"]["receipts"] is False


def test_a_format_before_0_3_0_is_refused() -> None:
    document = json.loads(golden(2)) | {"format": OLDEST_FORMAT - 1}
    with pytest.raises(ContractError, match="a format of 2 or later"):
        load_compiled(json.dumps(document))
    with pytest.raises(ContractError, match="1 is not a known format"):
        compile_contract(document, "device.json")


def test_a_newer_format_is_refused_with_one_named_error(tmp_path: Path) -> None:
    document = json.loads(golden(2)) | {"format": FORMAT + 1, "something": "new"}
    with pytest.raises(ContractFormatError, match="update the program") as caught:
        load_compiled(json.dumps(document), "device.json")
    assert (caught.value.found, caught.value.readable) == (FORMAT + 1, FORMAT)
    assert len(caught.value.problems) == 1
    assert "device.json" in str(caught.value)
    # The file that people write is refused alike.
    file = tmp_path / "plane.yaml"
    file.write_text(f"format: {FORMAT + 1}\nname: a\nname: b\n")
    with pytest.raises(ContractFormatError):
        load_contract(file)
