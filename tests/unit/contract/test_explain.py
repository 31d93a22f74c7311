"""Explanations: the router's decision, and the reason condition by condition."""

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contract.explain import Clause, Reception, explain, explain_filter, outcomes
from eventplane.__main__ import main
from eventplane.contract import Contract, Place, Problem, contract_document, load_compiled
from eventplane.contract.filter_reader import read_filter
from eventplane.envelope import write_event
from operations.explain_command import explanation_table
from tests.plane import shipped_contract
from tests.unit.contract.small import Routes, services, to, where

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
CONTRACT = shipped_contract()
GOLDEN = Path(__file__).parent / "golden" / "format-2.json"
RING = {"id": "1", "source": "/homes/1/bell", "type": "org.example.ring.v1"}
ATTRIBUTES = {
    "type": "org.example.alarm.v1",
    "subject": "/kitchen",
    "level": 3,
    "urgent": True,
    "loud": "true",
}


def condition(document: dict[str, Any]) -> Clause:
    problems: list[Problem] = []
    filter = read_filter(document, "filter", problems)
    assert problems == []
    found = explain_filter(filter, ATTRIBUTES)
    assert found.matched is filter.matches(ATTRIBUTES)
    return found


def test_the_routes_of_a_place_or_all_are_explained() -> None:
    event = write_event(RING)
    assert tuple(each.route for each in explain(CONTRACT, event)) == CONTRACT.routes
    for place in Place:
        explained = [each.route for each in explain(CONTRACT, event, place)]
        assert explained == list(CONTRACT.routes_at(place))
    assert explanation_table(()) == "no route to show"


def test_an_expression_is_split_at_and_and_or() -> None:
    found = condition({"sql": "level > 2 AND (missing = 'x' OR subject LIKE '/bath%')\n AND urgent"})
    assert found.text == "sql level > 2 AND (missing = 'x' OR subject LIKE '/bath%') AND urgent"
    level, either, urgent = found.parts
    assert (level.text, level.matched, level.values) == ("level > 2", True, {"level": 3})
    assert [each.matched for each in either.parts] == [False, False]
    assert either.parts[0].errors[0].startswith("missingAttribute: the event has no attribute 'missing'")
    assert urgent.matched
    assert [each.partition(":")[0] for each in found.errors] == ["missingAttribute"]


def test_conditions_are_cast_as_and_casts_them() -> None:
    loud, subject = condition({"sql": "loud AND subject"}).parts
    assert (loud.matched, subject.matched) == (True, False)
    assert subject.errors[0].startswith("cast:")
    # A value that is no boolean is shown.
    for text in ("level", "loud"):
        found = condition({"sql": text})
        assert (found.matched, found.gives) == (False, ATTRIBUTES[text])
    assert condition({"sql": "urgent XOR EXISTS nothing"}).parts == ()
    assert condition({"sql": "NOT (level = 3)"}).values == {"level": 3}


def test_matching_routes_come_first() -> None:
    contract = load_compiled(GOLDEN.read_bytes())
    lines = explanation_table(explain(contract, write_event(RING))).splitlines()
    assert lines == [
        "to-bell -> bell.inbox (device): MATCHES",
        "  yes  all of",
        '  yes    type is "org.example.ring.v1"                     type = "org.example.ring.v1"',
        "  yes    not",
        '  no       subject ends with "/attic"                      subject missing',
        "up -> device.outbox (device): MATCHES",
        '  yes  type starts with "org."                             type = "org.example.ring.v1"',
        "to-desk -> desk.inbox (cloud): does not match",
        "  no   any of",
        "  no     sql type LIKE 'org.example.%' AND EXISTS subject",
        "  yes      type LIKE 'org.example.%'                       type = \"org.example.ring.v1\"",
        "  no       EXISTS subject                                  subject missing",
        "  no     all of",
        '  no       source is "/a"                                  source = "/homes/1/bell"',
        '  no       subject is "/b"                                 subject missing',
    ]


@pytest.mark.source("P4", "C1")
@pytest.mark.parametrize(
    ("more", "promised"),
    [
        ({}, {"to-bell": "at_least_once", "up": "at_least_once", "to-desk": "at_least_once"}),
        (
            {"deliveryguarantee": "best_effort"},
            {"to-bell": "best_effort", "up": "best_effort", "to-desk": "best_effort"},
        ),
        # Over the desk's outbox, which the contract has at best effort, it comes to the cloud's router only.
        (
            {"senderservice": "desk"},
            {"to-bell": "at_least_once", "up": "at_least_once", "to-desk": "best_effort"},
        ),
    ],
)
def test_the_guarantee_of_each_delivery_is_explained(more: dict[str, str], promised: dict[str, str]) -> None:
    contract = load_compiled(GOLDEN.read_bytes())
    explanations = explain(contract, write_event({**RING, **more}))
    found = {each.route.name: each.document()["delivery_guarantee"] for each in explanations}
    assert found == promised
    table = explanation_table(explanations)
    assert ("MATCHES, at best effort" in table) is ("deliveryguarantee" in more)


def test_the_command_reads_and_prints_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_json, in_yaml = tmp_path / "event.json", tmp_path / "event.yaml"
    in_json.write_text(write_event(RING).json)
    in_yaml.write_text(
        "specversion: '1.0'\nid: '1'\nsource: /homes/1/bell\ntype: org.example.ring.v1\n"
        "time: 2026-03-01T08:30:00Z\n"
    )
    command = ["contract", "explain", "--contract", str(GOLDEN)]
    documents = []
    for file in (in_json, in_yaml):
        assert main([*command, str(file), "--place", "cloud", "--json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    from_json, from_yaml = documents
    assert from_json["event"] == RING
    assert from_yaml == from_json
    assert from_json["contract"] == {"name": "golden-2", "version": "2fcb59749438eb3a"}
    (route,) = from_json["routes"]
    assert (route["route"], route["matched"], route["filter"]["text"]) == ("to-desk", False, "any of")

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(in_json.read_bytes())))
    assert main([*command, "-"]) == 0
    printed = capsys.readouterr().out
    head = "org.example.ring.v1, id 1 of /homes/1/bell\ngolden-2, version 2fcb59749438eb3a\n"
    assert printed.startswith(head)
    assert "to-bell -> bell.inbox (device): MATCHES" in printed


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{}", "no valid event: missing_attribute"),
        (b'{"id": ', "no valid event: not_json"),
        (b"id: a\nid: b\n", "neither JSON nor YAML: id: the name"),
        (b"id: [", "neither JSON nor YAML: while parsing"),
        (b"id: .inf", "neither JSON nor YAML: Out of range"),
        (b"[" * 400, "neither JSON nor YAML: "),
        (b"id: \xff", "neither JSON nor YAML: "),
        (None, "cannot be read: Is a directory"),
    ],
)
def test_an_unread_event_is_one_line(
    content: bytes | None, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path
    if content is not None:
        file = tmp_path / ("event.json" if content.startswith(b"{") else "event.yaml")
        file.write_bytes(content)
    assert main(["contract", "explain", str(file), "--contract", str(GOLDEN)]) == 1
    output = capsys.readouterr()
    assert f"{file}: {problem}" in output.err
    assert (output.err.count("\n"), output.out) == (1, "")
    assert output.err.count(";") >= 1


PRESSED = "com.example.laundry.pressed.v1"
pressed_to = partial(to, type=PRESSED)


def laundry(**changes: Any) -> Contract:
    """The contract of somebody new: a type of the switch on the device, with two routes in the cloud."""
    routes = {
        "everything-to-cloud": where({"prefix": {"type": "org."}}, "device.outbox"),
        "pressed-to-desk": pressed_to("desk.inbox"),
        "pressed-to-shop": pressed_to("shop.inbox"),
        "dim-down": to("device.inbox", "dim", way="down"),
        "dim-to-lamp": to("lamp.inbox", "dim"),
        **changes,
    }
    return services(routes, {"switch": [PRESSED], "desk": ["dim"]}, f"{PRESSED} dim")


UP: Routes = {"pressed-up": pressed_to("device.outbox")}
NO_READER: Routes = {name: to("desk.inbox", "none") for name in ("pressed-to-desk", "pressed-to-shop")}
ATTIC: Routes = {name: pressed_to("desk.inbox", floor="attic") for name in NO_READER}
BOTH = {"desk.inbox": "pressed-up -> pressed-to-desk", "shop.inbox": "pressed-up -> pressed-to-shop"}


def outcome(contract: Contract, type: str = PRESSED, sender: str = "", **attributes: str) -> Reception:
    event = write_event({"id": "1", "source": "/homes/1/laundry", "type": type, **attributes})
    (found,) = outcomes(contract, event, sender)
    return found


def received(found: Reception) -> dict[str, str]:
    return {each.channel.address: " -> ".join(hop.route.name for hop in each.hops) for each in found.receipts}


DOWN = {"way": "down"}


@pytest.mark.parametrize(
    ("routes", "type", "sender", "attributes", "problem", "remedy"),
    [
        (
            {},
            PRESSED,
            "",
            {},
            "no route on the device takes it to device.outbox "
            "(pressed-to-desk and pressed-to-shop would take it in the cloud)",
            "let everything-to-cloud take it, or add a route to device.outbox",
        ),
        (
            {},
            "dim",
            "",
            {},
            "no route in the cloud takes it to device.inbox (dim-to-lamp would take it on the device)",
            "let dim-down take it, or add a route to device.inbox",
        ),
        (
            {"everything-to-cloud": pressed_to("device.outbox"), **ATTIC},
            PRESSED,
            "",
            {},
            "everything-to-cloud takes it to the cloud, where no route takes it",
            "",
        ),
        (
            {**UP, **NO_READER, "dim-down": pressed_to("device.inbox")},
            PRESSED,
            "",
            {},
            "what comes from a device does not go down to devices",
            "",
        ),
        (
            {**UP, **NO_READER, "pressed-to-desk": {**pressed_to("desk.inbox"), "interest": []}},
            PRESSED,
            "",
            {},
            "the reader of pressed-to-desk announced no interest in it",
            "",
        ),
        (
            {},
            "dim",
            "lamp",
            {},
            "it is refused (sender_not_allowed): lamp sent 'dim'",
            "add it to the sender's",
        ),
        (NO_READER, PRESSED, "", {}, "no route on the device takes it", "add a route to an inbox"),
        ({}, "dim", "nobody", {}, "the contract has no such participant there", "deploy its contract"),
        ({}, "rong", "", {}, "no participant may send rong", "add it to the `sends` of its sender"),
        (
            {},
            "dim",
            "",
            {"senderservice": "shop"},
            "it is refused (sender_not_allowed): shop sent 'dim'",
            "add it to the sender's `sends`",
        ),
    ],
)
def test_an_event_without_receivers_has_the_reason_and_a_remedy(
    routes: Routes, type: str, sender: str, attributes: dict[str, str], problem: str, remedy: str
) -> None:
    found = outcome(laundry(**routes), type, sender, **attributes)
    assert found.receipts == ()
    assert problem in found.problem
    assert remedy in found.remedy
    is_refused = any(each in problem for each in ("refuse", "may send", "no such participant"))
    assert found.document()["fate"] == ("refused" if is_refused else "dropped")


def test_a_given_sender_replaces_the_stamped_one() -> None:
    # A forwarder sends its own reports up, also without a route.
    report = write_event({"id": "1", "source": "/a", "type": "org.eventplane.device.canary.v1"})
    (own,) = outcomes(CONTRACT, report, "eventplane-canary/")
    assert received(own) == {"canary.inbox": "canary-to-canary"}
    found = outcome(laundry(**UP), PRESSED, "switch", senderservice="lamp")
    assert (found.sender, received(found)) == ("switch", BOTH)
    assert outcome(laundry(), PRESSED, senderdevice="home-1").sender == "home-1/"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ({}, "device.inbox refuses it (no_device): it has neither `todevice`"),
        ({"todevice": "a b"}, "device.inbox refuses it (unknown_device): 'a b' is not a name"),
        ({"todevice": "*"}, "device.inbox refuses it (address_not_allowed): desk addressed all devices"),
        ({"todevice": "a", "statekey": "a"}, "device.inbox refuses it (invalid_state_key): "),
    ],
)
def test_an_event_that_the_downlink_refuses_reaches_no_device(address: dict[str, str], problem: str) -> None:
    found = outcome(laundry(), "dim", **DOWN, **address)
    assert found.receipts == ()
    assert found.problem.startswith(problem)
    also = outcome(laundry(**{"dim-to-shop": to("shop.inbox", "dim")}), "dim", **DOWN, **address)
    assert received(also) == {"shop.inbox": "dim-to-shop"}
    assert also.not_down.reason in problem


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The lines that the command prints below its head."""
    assert main(["contract", "explain", *arguments, "--matches"]) == 0
    return capsys.readouterr().out.splitlines()[2:]


def test_the_output_begins_with_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    words = (str(EXAMPLES / "battery.json"), "--contract", str(EXAMPLES / "doorbell.yaml"))
    assert explained(capsys, *words) == [
        "routes that match: everything-to-cloud",
        "sent by: bell",
        "received by: nobody, because everything-to-cloud takes it to the cloud, where no route takes it; "
        "add a route to an inbox, or correct the filter of one",
        "",
        "everything-to-cloud -> device.outbox (device): MATCHES",
        '  yes  type starts with "org.example."  type = "org.example.battery.v1"',
    ]
    assert "it is refused (sender_not_allowed)" in "\n".join(explained(capsys, *words, "--sender", "chime"))


def test_routes_are_those_of_the_sender(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    routes = {"of-desk": {"filter": {"exact": {"senderservice": "desk"}}, "to": "shop.inbox"}}
    contract, event = tmp_path / "contract.json", tmp_path / "event.yaml"
    contract.write_text(json.dumps(contract_document(laundry(**routes))))
    event.write_text("specversion: '1.0'\nid: a\nsource: /a\ntype: dim\nway: down")
    lines = explained(capsys, str(event), "--contract", str(contract))
    assert lines[:4] == [
        "routes that match: dim-down, dim-to-lamp, of-desk",
        "sent by: desk",
        "received by:",
        "  shop.inbox by of-desk",
    ]
    assert lines[4].startswith("received by no device, because it is refused (no_device): it has neither")
    assert 'senderservice = "desk"' in "\n".join(lines)


def test_dead_letters_are_sent_by_the_plane_and_by_devices() -> None:
    event = write_event({"id": "1", "source": "/a", "type": "org.eventplane.deadletter.v1"})
    assert {each.sender: received(each) for each in outcomes(CONTRACT, event)} == {
        "eventplane": {"operations.inbox": "dead-letters-to-operations"},
        "device": {"operations.inbox": "everything-to-cloud -> dead-letters-to-operations"},
    }


def test_senders_share_a_paragraph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, contract = tmp_path / "event.yaml", tmp_path / "contract.json"
    file.write_text(
        "specversion: '1.0'\nid: a\nsource: /a\ntype: org.eventplane.conversation.reply.v1\nreplyto: carers"
    )
    contract.write_bytes(CONTRACT.canonical)
    lines = explained(capsys, str(file), "--contract", str(contract))
    summary = lines[: lines.index("")]
    assert sum(each.startswith("sent by: ") for each in summary) == 2
    assert summary[-1].strip() == "carers.replies by replies-to-carers"


@pytest.mark.parametrize("data", ["{door: 7}", "{}"])
def test_the_home_has_it_alone(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "event.yaml"
    file.write_text(f"specversion: '1.0'\nid: a\nsource: /a\ntype: org.example.ring.v1\ndata: {data}")
    lines = explained(capsys, str(file), "--contract", str(EXAMPLES / "doorbell.yaml"))
    summary = lines[: lines.index("")]
    assert summary[-2:-1] == ["  chime.inbox by rings-to-chime"]
    refused = "received by nobody in the cloud, because it is refused (payload_invalid): $"
    assert summary[-1].startswith(refused)
