"""A contract may name a protocol that a package adds: which, for whom, and who has to have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from contract.loader import load_contract
from contract.publish import Deployment, DestinationsNotDeployedError, Publisher
from contract.summary import settings_text
from eventplane.contract import Contract, ContractError, compile_contract, load_compiled
from eventplane.names import SENDERS
from eventplane.registry.build import endpoint
from tests.packages import install

pytestmark = pytest.mark.source("P13")


def document(**desk: Any) -> dict[str, Any]:
    return {
        "format": 7,
        "name": "small",
        "participants": {
            "device": {"kind": "device", "description": "a device"},
            "bell": {"kind": "device_service", "description": "rings"},
            "desk": {"kind": "cloud_service", "description": "listens", **desk},
        },
        "event_types": {},
        "routes": {
            "up": {"filter": {"prefix": {"type": "org."}}, "to": "device.outbox"},
            "to-desk": {"filter": {"prefix": {"type": "org."}}, "to": "desk.inbox"},
        },
    }


def compiled(**inbox: Any) -> Contract:
    return compile_contract(document(inbox=inbox), "test")


def test_a_cloud_services_channel_may_use_a_protocol_that_the_core_does_not_know() -> None:
    contract = compiled(transport="pigeon", retention_s=3_600)
    inbox, outbox = contract.channel("desk.inbox"), contract.channel("desk.outbox")
    assert (inbox.transport, inbox.is_added_protocol) == ("pigeon", True)
    assert (outbox.transport, outbox.is_added_protocol) == ("sqs", False)
    assert settings_text(inbox) == "pigeon, at least once, priority normal"
    described = endpoint(contract.participants["desk"], inbox, carries=[], messagegroup="g")
    assert (described["protocol"], described["protocoloptions"]) == ("PIGEON", {"deployed": False})


def test_devices_without_the_package_read_it_and_older_software_is_told_that_it_is_newer() -> None:
    contract = compiled(transport="pigeon")
    assert load_compiled(contract.canonical) == contract
    assert json.loads(contract.canonical)["format"] == 7
    assert json.loads(compiled().canonical)["format"] == 2


@pytest.mark.parametrize(
    ("path", "settings"),
    [
        ("device.outbox", {"transport": "pigeon"}),
        ("bell.inbox", {"transport": "pigeon"}),
        ("desk.inbox", {"transport": "Carrier Pigeon"}),
        ("desk.inbox", {"transport": "pigeon", "ordering": "source"}),
        ("desk.inbox", {"transport": "pigeon", "webhook": {}}),
        ("subscribers.inbox", {"transport": "pigeon"}),
    ],
)
def test_what_cannot_use_it_is_refused(path: str, settings: dict[str, Any]) -> None:
    written = document()
    participant, _, box = path.partition(".")
    default = {"kind": "cloud_service", "description": "the plane's own"}
    written["participants"].setdefault(participant, default)[box] = settings
    with pytest.raises(ContractError) as refused:
        compile_contract(written, "test")
    assert {each.path.rpartition(".")[0] for each in refused.value.problems} == {f"participants.{path}"}


def test_whoever_compiles_must_have_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "plane.yaml"
    file.write_text(yaml.safe_dump(document(inbox={"transport": "pigeon"})))
    with pytest.raises(ContractError) as refused:
        load_contract(file)
    (problem,) = refused.value.problems
    assert problem.path == "participants.desk.inbox.transport"
    install(monkeypatch, tmp_path, "pigeon_compiled", {SENDERS: {"pigeon": "pigeon_compiled:Sender"}}, "")
    assert load_contract(file).channel("desk.inbox").transport == "pigeon"


@pytest.mark.parametrize(
    ("transport", "url", "fits"),
    [
        ("pigeon", "pigeon://loft/desk", True),
        ("pigeon", "https://queue", False),
        ("sqs", "pigeon://loft/desk", False),
        ("sqs", "https://queue", True),
        ("sqs_fifo", "https://queue", False),
        ("sqs_fifo", "https://queue.fifo", True),
    ],
)
def test_a_contract_is_published_where_its_channels_are_of_the_deployed_protocol(
    transport: str, url: str, fits: bool
) -> None:
    contract = compiled(transport=transport)
    publisher = Publisher(Deployment("base", {"desk.inbox": url}, "table"), None)
    if fits:
        publisher.check(contract)
    else:
        with pytest.raises(DestinationsNotDeployedError):
            publisher.check(contract)
