"""Senders of routers: SQS' is their own, those of other packages are found by entry points."""

from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from eventplane.names import SENDERS
from eventplane.sqs_binding import to_message
from lambdas.common.sender import (
    TAKEN,
    Acceptance,
    Answer,
    NoSenderError,
    OutgoingMessage,
    Senders,
    SeveralSendersError,
)
from lambdas.common.sqs import SqsSender
from tests.packages import install
from tests.unit.lambdas.support import Cloud, event

pytestmark = pytest.mark.source("P13", "N1")

PIGEON = """
from lambdas.common.sender import TAKEN

class Sender:
    sent = []

    def send(self, url, batch):
        self.sent += [(url, each.body) for each in batch]
        return [TAKEN] * len(batch)
"""

LATE = (
    PIGEON
    + """
tries = []

def open_sender():
    tries.append(1)
    if len(tries) < 3:
        raise OSError("no secret")
    return Sender()
"""
)

BATCH = [to_message(event("1")), to_message(event("2"))]


class Broken:
    """A sender that breaks its promise: it raises, or gives other than one answer for each message."""

    def __init__(self, answers: Sequence[Answer] | None) -> None:
        self._answers = answers

    def send(self, url: str, batch: Sequence[OutgoingMessage]) -> list[Answer]:
        if self._answers is None:
            raise TimeoutError("no pigeon came back")
        return list(self._answers)


def test_a_package_adds_a_sender(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cloud: Cloud) -> None:
    install(monkeypatch, tmp_path, "pigeon_sender", {SENDERS: {"pigeon": "pigeon_sender:Sender"}}, PIGEON)
    senders = Senders.of(["pigeon://loft/desk", "https://queue"], {"https": SqsSender(cloud.sqs)})
    assert senders.send("pigeon://loft/desk", BATCH) == [TAKEN] * 2
    (registered,) = entry_points(group=SENDERS, name="pigeon")
    assert registered.load().sent == [("pigeon://loft/desk", each.body) for each in BATCH]


def test_a_router_whose_destination_has_no_sender_does_not_start(cloud: Cloud) -> None:
    with pytest.raises(NoSenderError, match=r"for 'pigeon'; known are: .*https.*environments.toml") as wrong:
        Senders.of(["https://queue", "pigeon://loft"], {"https": SqsSender(cloud.sqs)})
    assert wrong.value.scheme == "pigeon"
    assert "https" in wrong.value.known


def test_two_senders_of_one_protocol_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("pigeon_north", "pigeon_south"):
        install(monkeypatch, tmp_path / name, name, {SENDERS: {"pigeon": f"{name}:Sender"}}, PIGEON)
    with pytest.raises(SeveralSendersError) as wrong:
        Senders.of(["pigeon://loft"])
    assert wrong.value.values == ["pigeon_north:Sender", "pigeon_south:Sender"]


@pytest.mark.parametrize(
    "code", ["import no_such_library", "def Sender():\n    raise OSError('no_such_library')"]
)
def test_a_broken_package_affects_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cloud: Cloud, code: str
) -> None:
    install(monkeypatch, tmp_path, "pigeon_sender", {SENDERS: {"pigeon": "pigeon_sender:Sender"}}, code)
    url = cloud.queue("some-inbox")
    senders = Senders.of(["pigeon://loft", url], {"https": SqsSender(cloud.sqs)})
    for answer in senders.send("pigeon://loft", BATCH):
        assert (answer.acceptance, "no_such_library" in answer.detail) == (Acceptance.AGAIN, True)
    assert senders.send(url, BATCH) == [TAKEN, TAKEN]


def test_a_sender_is_opened_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, "pigeon_sender", {SENDERS: {"pigeon": "pigeon_sender:open_sender"}}, LATE)
    senders = Senders.of(["pigeon://loft"])
    assert [each.acceptance for each in senders.send("pigeon://loft", BATCH)] == [Acceptance.AGAIN] * 2
    assert senders.send("pigeon://loft", BATCH) == [TAKEN] * 2
    assert senders.send("pigeon://loft", BATCH) == [TAKEN] * 2


@pytest.mark.parametrize(
    ("answers", "detail"),
    [
        (None, "TimeoutError: no pigeon came back"),
        ([TAKEN], "its sender answered 1 times for 2 messages"),
        ([TAKEN] * 3, "its sender answered 3 times for 2 messages"),
    ],
)
def test_a_wrong_sender_affects_no_other(answers: Sequence[Answer] | None, detail: str) -> None:
    senders = Senders({"pigeon": Broken(answers), "https": Broken([TAKEN, TAKEN])})
    assert senders.send("pigeon://loft", BATCH) == [Answer(Acceptance.AGAIN, detail)] * 2
    assert senders.send("https://queue", BATCH) == [TAKEN, TAKEN]
