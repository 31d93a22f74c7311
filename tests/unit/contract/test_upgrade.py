"""A contract of 0.3.0, as that version shipped it, today (docs/how-to/upgrade.md)."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from contract import CONTRACT_FILE, load_contract
from contract.checks import check
from contract.explain import outcomes
from eventplane.contract import Contract
from eventplane.envelope import write_event
from eventplane.limits import DAY_S
from eventplane.names import CANARY_ALARM, CANARY_CLIENT, MONITOR, NOTICE_OF_MANY

SHIPPED = Path(__file__).parent / "golden" / "event_plane-0.3.0.yaml"
COMPILED = "ccbae4b66b756bce"
"""The digest of the participants and routes that 0.3.0 compiled of it."""


def compiled(folder: Path, document: Any) -> Contract:
    shutil.copytree(CONTRACT_FILE.parent / "schemas", folder / "schemas")
    file = folder / "event_plane.yaml"
    file.write_text(yaml.safe_dump(document))
    return load_contract(file)


@pytest.fixture
def document() -> Any:
    return yaml.safe_load(SHIPPED.read_text())


def digest(contract: Contract) -> str:
    document = json.loads(contract.canonical)
    text = json.dumps([document["participants"], document["routes"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_two_defaults_are_others(tmp_path: Path, document: Any) -> None:
    found = compiled(tmp_path / "as-it-is", document)
    assert digest(found) != COMPILED
    for name, each in found.participants.items():
        given = document["participants"][name]
        if each.inbox.retention_s == 7 * DAY_S:
            given["inbox"] = {**(given.get("inbox") or {}), "retention_s": 14 * DAY_S}
        if each.outbox.receipts:
            given["outbox"]["receipts"] = False
    again = compiled(tmp_path / "written-out", document)
    assert json.loads(again.canonical)["format"] == 8
    assert digest(again) == COMPILED


def test_what_it_would_not_hear_is_warned_of(tmp_path: Path, document: Any) -> None:
    found = compiled(tmp_path / "as-it-is", document)
    warned = {each.path: each for each in check(found) if each.path.startswith("routes.")}
    assert set(warned) == {
        "routes.canary-to-canary",
        "routes.notices-to-carers",
        "routes.notices-to-relatives",
    }
    assert NOTICE_OF_MANY in warned["routes.notices-to-carers"].message
    assert f"senderdevice {CANARY_CLIENT}" in warned["routes.canary-to-canary"].remedy

    # The remedies, as the warnings have them.
    for name in ("notices-to-carers", "notices-to-relatives"):
        document["routes"][name]["filter"] = {"prefix": {"type": "org.eventplane.notice."}}
    both = [{"exact": {"type": CANARY_ALARM}}, {"exact": {"senderdevice": CANARY_CLIENT}}]
    document["routes"]["canary-to-canary"]["filter"] = {"all": both}
    adapted = compiled(tmp_path / "adapted", document)
    assert not [each for each in check(adapted) if each.path.startswith("routes.")]
    for contract, heard in ((found, 0), (adapted, 2)):
        event = write_event({"id": "1", "source": "/p", "type": NOTICE_OF_MANY}, {})
        (outcome,) = outcomes(contract, event, MONITOR)
        assert len(outcome.receipts) == heard
