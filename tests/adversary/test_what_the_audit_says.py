"""After all attacks: the delivery audit of the archive that they left, and of one where a loss is masked."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventplane.envelope import Envelope, write_event
from lab.audits import run_audits
from lab.demo.faults import write_as_its_writer
from lab.process import Supervisor
from tests.adversary.conftest import Attempt
from tests.adversary.world import ALARM, HELP, THIEF, VICTIM, VOICE, World, new_id


@pytest.fixture(scope="module")
def masked(world: World) -> Envelope:
    """An alarm of the victim, whose `source` and `id` an event of the thief has too; both were delivered."""
    event = write_event({"id": new_id(), "source": VOICE, "type": ALARM}, HELP)
    world.thief.naming("voice-service").send(event)
    world.home.services["voice-service"].put(event)
    senders = {f"{THIEF}/voice-service", f"{VICTIM}/voice-service"}
    assert world.comes(lambda: world.deciders(event) == senders)
    return event


@pytest.fixture(scope="module")
def reports(world: World, masked: Envelope, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """What the audit says of the archive, and of a copy whose ledger does not have the victim's alarm."""
    folder = tmp_path_factory.mktemp("audit")
    whole, broken = folder / "whole", folder / "broken"
    for each in (whole, broken):
        world.archive.copy_to(each)
    for file in (broken / "ledger").rglob("*.gz"):
        _without(broken, file.relative_to(broken), VICTIM, masked.id)
    with Supervisor(folder / "run") as supervisor:
        yield run_audits(supervisor, {whole: folder / "whole-report", broken: folder / "broken-report"})


def _without(archive: Path, name: Path, device: str, id: str) -> None:
    """Delete the rows about an event of `device` from a ledger file, as if its writer never had them."""
    lines = gzip.decompress((archive / name).read_bytes()).splitlines()
    kept = [
        line for line in lines if not ((row := json.loads(line))["id"] == id and row["client_id"] == device)
    ]
    if kept != lines:
        write_as_its_writer(archive, name, kept)


def findings(report: Any, kind: str, event: Envelope) -> list[Any]:
    """The findings of this kind about the events with the `source` and `id` of `event`."""
    return [
        each
        for each in report["findings"]
        if (each["kind"], each["source"], each["id"]) == (kind, event.source, event.id)
    ]


def test_every_attack_is_accounted_for(reports: list[Any]) -> None:
    report = reports[0]
    kinds = {each["kind"] for each in report["kinds"]}
    assert not kinds & {"lost", "misrouted", "not_allowed", "unexplained"}, report["kinds"]


def test_two_senders_of_one_event(reports: list[Any], masked: Envelope, attempt: Attempt) -> None:
    """thief/: send what another home sends too, with its `source` and `id`"""
    found = findings(reports[0], "two_senders", masked)
    named = {each["detail"] for each in found}
    attempt.reported(
        named == {f"{VICTIM}/voice-service, {THIEF}/voice-service"}, (named, reports[0]["kinds"])
    )
    attempt.refused(not findings(reports[0], "duplicate", masked), "they count as copies of one event")


def test_a_masked_loss(reports: list[Any], masked: Envelope, attempt: Attempt) -> None:
    """thief/: mask that another home's alarm was lost, by a delivered event with its `source` and `id`"""
    found = findings(reports[1], "lost", masked)
    attempt.refused(reports[1]["verdict"] == "broken", reports[1]["verdict"])
    attempt.reported({each["device"] for each in found} == {VICTIM}, reports[1]["kinds"])
