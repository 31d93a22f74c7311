"""The catalogue's text: every part of the contract is in it, settings in words, arrows where events go."""

import html
import json
import re
from pathlib import Path

import pytest

from contract.catalogue import catalogue
from contract.catalogue.page import picture
from contract.summary import settings_text
from eventplane.contract import Contract
from eventplane.filter_texts import filter_text
from eventplane.reach import flows
from operations.command_line import main
from tests.plane import shipped_contract
from tests.small_contract import with_changes
from tests.unit.contract.small import RING, small

CONTRACT = shipped_contract()


def plane(**bell: object) -> Contract:
    """The small plane, whose bell has these settings more; nothing else sends, and a type is lost."""
    return small(
        {
            **{f"participants/bell/{name}": each for name, each in bell.items()},
            **{f"participants/{name}/sends": [] for name in ("device", "desk")},
            "participants/desk/inbox/webhook": {},
            "event_types/lost/description": "Nobody takes it.",
        }
    )


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "new" / "page.html"
    assert main(["contract", "catalogue", "--output", str(output)]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    assert output.read_text() == catalogue(CONTRACT)


@pytest.mark.source("P4")
def test_the_page_has_the_guarantees_of_types_and_routes() -> None:
    guarantees = {f"event_types/{RING}": "best_effort", "routes/to-desk": "at_least_once"}
    changes = {f"{path}/delivery_guarantee": each for path, each in guarantees.items()}
    page = catalogue(with_changes(plane(), changes))
    assert "<dt>Guarantee</dt><dd>best effort, unless its route declares otherwise</dd>" in page
    assert "decided in the cloud, at least once</span>" in page
    assert "<dt>Guarantee</dt>" not in catalogue(plane())


def test_the_page_has_every_part_of_the_contract() -> None:
    page = html.unescape(catalogue(CONTRACT))
    assert "The schema has no example." not in page
    for participant in CONTRACT.participants.values():
        assert f'id="participant-{participant.name}"' in page
        assert participant.description in page
        assert settings_text(participant.inbox) in page
    for route in CONTRACT.routes:
        assert f'id="route-{route.name}"' in page
        assert filter_text(route.filter) in page
    for event_type in CONTRACT.event_types.values():
        assert f'id="type-{event_type.name}"' in page
        assert event_type.description in page
        for id, schema in event_type.schemas.items():
            assert id in page
            assert json.dumps(schema, indent=2, ensure_ascii=False) in page
    for event_type in CONTRACT.event_types.values():
        for id in event_type.schemas:
            page = page.replace(id, "")
    assert "http" not in page.replace("https://json-schema.org", ""), "it needs nothing else"


def test_the_page_names_what_is_missing_and_what_is_asked() -> None:
    page = catalogue(with_changes(plane(sends=None), {"participants/desk/asks": [RING]}))
    for words in (
        "Nobody: no route takes it.",
        "It does not say what.",
        "No schema: the payload is anything.",
        "HTTPS (a webhook), at least once",
        "<dt>Replies</dt><dd>SQS, at least once",
    ):
        assert words in page
    (asked,) = re.findall("<dt>Asks</dt><dd>(.*?)</dd>", page)
    assert f'href="#type-{RING}"' in asked


def test_arrows_follow_the_routes_of_events() -> None:
    contract = plane(sends=[RING], outbox={"priority": "urgent"})
    arrows = {
        each.title: (each.style, each.x1 < each.x2) for each in picture(contract, flows(contract)).arrows
    }
    assert arrows == {
        f"bell sends: {RING}": ("urgent", True),
        "uplink: up": ("normal", True),
        f"desk receives: {RING}": ("normal", True),
    }
    contract = with_changes(plane(sends=[]), {"routes/to-desk": None})
    assert [each.title for each in picture(contract, flows(contract)).arrows] == ["uplink: up"]
