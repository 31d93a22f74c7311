"""The audit agrees with the simulator, wherever events end; where it does not, the history has a finding."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from contract import load_contract
from glue_jobs.delivery_audit.small import audit_small
from lab.histories import history as module
from lab.histories.history import History
from lab.histories.iot_core import IotCore
from lab.histories.oracles import audited, judged
from lab.histories.queues import Queues
from lab.histories.story import ALARMS, Story, StoryStep

pytestmark = pytest.mark.long

READING, ALARM = "org.eventplane.health.reading.v1", "org.eventplane.alarm.clinical.v1"
CONTRACT = load_contract()


def told(*decisions: StoryStep) -> History:
    said = StoryStep(5.0, "say", "home-1", text=READING), StoryStep(6.0, "say", "home-1", text=ALARM)
    return History(Story(1, 0, (*said, *decisions)), CONTRACT).run()


def without_urgent() -> Callable[[IotCore, str, str], None]:
    """A rule whose messages to the router of urgent events are lost while the alarm comes up."""
    write = IotCore._rule_writes

    def writes(self: IotCore, url: str, body: str) -> None:
        if not (url == self._cloud.urgent and 6.0 < self.engine.now_s < 8.0):
            write(self, url, body)

    return writes


@pytest.mark.parametrize("before", [(), (StoryStep(0.0, "few-receives", "urgent", 2),)], ids=["", "redriven"])
@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        (StoryStep(8.0, "publish", text=f"{ALARMS}"), StoryStep(190.0, "publish")),
        (StoryStep(8.0, "publish", text=f"{ALARMS}"), StoryStep(190.0, "publish", text=f"{ALARMS}clinical")),
        (
            StoryStep(8.0, "put", "care-analytics", text=f"first inbox {ALARMS}"),
            StoryStep(190.0, "delete", "care-analytics", text="first"),
        ),
    ],
    ids=["withdrawn", "replaced", "unsubscribed"],
)
def test_a_route_that_left_owes_none(
    before: tuple[StoryStep, ...], begins: StoryStep, ends: StoryStep
) -> None:
    alarms = [StoryStep(188.0 + at / 4, "say", "home-1", text=f"{ALARMS}keyword.v1") for at in range(16)]
    history = told(*before, begins, StoryStep(187.0, "part", "sqs", 60.0), ends, *alarms)
    # Some were retried by another contract than at first.
    decided = Counter(
        key
        for key, _ in {((each["source"], each["id"]), each["contract_version"]) for each in history.ledger}
    )
    assert max(decided.values()) > 1
    assert judged(history) == []


@pytest.mark.parametrize(
    ("patched", "decisions", "kinds"),
    [
        ((), (), {}),
        (
            (module, "DATA", {**module.DATA, READING: {}}),
            (),
            {("dead_lettered", "router"): 1},
        ),
        ((IotCore, "_rule_writes", without_urgent()), (), {("lost", "router"): 3}),
        ((), (StoryStep(5.5, "lose-puback", "home-1", 1),), {("duplicate", "device_cloud"): 1}),
    ],
    ids=["delivered", "dead letter", "lost at the router", "sent again"],
)
def test_the_audit_says_what_the_simulator_knows(
    monkeypatch: pytest.MonkeyPatch,
    patched: tuple[Any, ...],
    decisions: tuple[StoryStep, ...],
    kinds: dict[Any, int],
) -> None:
    if patched:
        monkeypatch.setattr(*patched)
    history = told(*decisions)
    assert list(audited.judged(history)) == []
    assert audit_small(audited.request_of(history.cloud, audited.ended_ms(history))).kinds == Counter(kinds)


def test_a_locked_out_device_accuses_nobody() -> None:
    drill = StoryStep(0.0, "drill", "desired", text="lose-answer")
    history = told(drill, StoryStep(166.46, "key", "home-1", text="is lost"))
    assert history.spooled["home-1"]
    assert list(audited.judged(history)) == []


def lose_ledger(history: History) -> None:
    bucket = history.cloud.s3.buckets["archive"]
    for name in [each for each in bucket if "ledger/" in each]:
        del bucket[name]


def forget(history: History) -> None:
    """A message that SQS took, and that the ledger says was delivered, never was."""
    queues: Queues = history.cloud.sqs
    queues.sent[history.cloud.inboxes["alarm-centre.inbox"]].clear()


@pytest.mark.parametrize("damage", [lose_ledger, forget])
def test_an_audit_that_says_something_else_is_a_finding(damage: Callable[[History], None]) -> None:
    history = told()
    damage(history)
    kinds = {each.kind for each in audited.judged(history)}
    assert kinds >= {"the audit is wrong: verdict", "the audit misses: verdict"}
