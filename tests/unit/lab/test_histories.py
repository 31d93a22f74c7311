"""Histories of the whole plane break no promise, and one of a plane that is wrong does."""

import gc
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import pytest

from edge.contract_updates import read_contract
from edge.errors import SettingProblem
from edge.forwarder import Forwarder
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.reasons import Outcome
from lab.histories import search
from lab.histories.endpoints import Post
from lab.histories.engine import Fiber
from lab.histories.history import History
from lab.histories.oracles import OracleFinding, judged, posted, subscribed
from lab.histories.search import Told, findings_of, minimized, story_of, told
from lab.histories.shared import shared
from lab.histories.story import (
    ALARMS,
    DOWN,
    DOWN_S,
    ENDPOINTS,
    READERS,
    SENDERS,
    TAKEN,
    WATCH,
    Story,
    StoryStep,
)
from lab.histories.subscriber import RouteChange
from lambdas.router.active_contract import ActiveContract
from lambdas.router.engine import RoutingEngine
from lambdas.router.planner import Planner
from parts.fleet import service
from parts.fleet.rotation import CertificateRotation
from parts.provisioning.renewal import Pairs, Renewal
from parts.simulate.timeline import START_S
from parts.webhooks.delivery import Breaker
from parts.webhooks.service import WebhookService
from tests.fakes.sqs import FakeQueue, FakeSqs
from tests.plane import shipped_contract

pytestmark = pytest.mark.long

KEYWORD, MOTION = f"{ALARMS}keyword.v1", "org.eventplane.activity.motion.v1"


def story(*decisions: StoryStep, order: int = 0, is_ordered: bool = False) -> Story:
    return Story(1, order, decisions, is_ordered)


def deeds(*those: tuple[float, str, str]) -> tuple[StoryStep, ...]:
    return tuple(StoryStep(at_s, what, "home-1", text=text) for at_s, what, text in those)


def say(at_s: float, kind: str = KEYWORD) -> StoryStep:
    return StoryStep(at_s, "say", "home-1", text=kind)


THEFT: Final = story(
    *deeds(
        (10.0, "key", "is stolen"),
        (20.0, "thief", "renews"),
        (25.0, "thief", "connects"),
        (40.0, "thief", "renews"),
        (60.0, "fleet", "recover"),
        (60.1, "thief", "renews"),
        (200.0, "thief", "connects"),
        (260.0, "thief", "renews"),
    )
)
CLAIM: Final = story(
    *deeds(
        (5.0, "key", "is lost"),
        (20.0, "fleet", "allow-replacement"),
        *((20.0 + 0.5 * number, "thief", "claims") for number in range(1, 16)),
        (300.0, "key", "is looked at"),
    )
)
KEPT: Final = story(
    *deeds(
        (5.0, "fleet", "allow-replacement"),
        (10.0, "thief", "claims"),
        (12.0, "thief", "connects"),
        (60.0, "fleet", "recover --keep"),
        (200.0, "thief", "connects"),
    )
)
PROOF: Final = story(
    StoryStep(18.0, "lose-answer", "home-1 proof", 4),
    *deeds((19.0, "key", "is due"), (300.0, "key", "is looked at")),
    order=12,
)
TO_ENDPOINT: Final = f"first {ENDPOINTS[0]} {ALARMS}"
IN_FLIGHT: Final = story(
    *deeds((5.0, "key", "is lost"), (20.0, "fleet", "recover"), (300.0, "thief", "connects")),
    *deeds(*((35.0 + 0.1 * number, "thief", "claims") for number in range(4))),
    order=10,
)
THROTTLED: Final = story(
    *deeds((5.0, "key", "is lost"), (20.0, "fleet", "recover"), (350.0, "thief", "connects")),
    *deeds(*((27.7 + 0.4 * number, "thief", "claims") for number in range(7))),
    # Ten functions run when the keeper has to end what the claim registered: its messages come again later.
    *(StoryStep(80.0, "slow", each, 20.0) for each in ("sqs", "dynamodb")),
    *(StoryStep(at_s, each, "home-1", 3) for at_s in (87.0, 89.0, 91.0, 93.0) for each in DOWN),
    *(say(at_s) for at_s in (87.0, 89.0, 91.0, 93.0)),
    order=3,
)
EVICTED: Final = story(
    StoryStep(20.0, "broker-stop", "home-1", 57.0),
    StoryStep(20.2, "threshold", "home-1", 1),
    StoryStep(20.8, "disk-full", "home-1", 64.0),
    say(27.0, f"{ALARMS}clinical.v1"),
)
SUBSCRIBED: Final = story(
    StoryStep(1.0, "put", "carers", text=TO_ENDPOINT),
    StoryStep(2.0, "put", "care-analytics", text=f"first inbox {ALARMS}"),
    StoryStep(3.0, "lose-answer", "family-app-administrator", 1),
    StoryStep(3.0, "post", "family-app", text=TO_ENDPOINT),
    StoryStep(50.0, "endpoint", ENDPOINTS[0], 60, "429 30"),
    *(say(55.0), say(59.0)),
    StoryStep(120.0, "endpoint", ENDPOINTS[0], 20, "400"),
    say(125.0),
    StoryStep(150.0, "redrive"),
    StoryStep(160.0, "replay", "alarm-centre", 300),
    StoryStep(170.0, "endpoint", ENDPOINTS[0], 20, "410"),
    say(175.0),
    StoryStep(200.0, "publish", text=ALARMS),
    say(260.0),
)
ORDERED: Final = story(
    StoryStep(19.0, "dependency-down", WATCH, 3.5),
    *(StoryStep(20.0 + at, "round", WATCH, 1) for at in range(4)),
    is_ordered=True,
)
GIVEN_UP: Final = story(
    *(say(at_s, "org.eventplane.health.reading.v1") for at_s in (20.0, 100.0, 270.0)),
    # The first one comes when the second has waited for long enough, and the third has not.
    *(StoryStep(at_s, "die", "router-ingest", 2) for at_s in (62.0, 243.0, 432.0)),
    is_ordered=True,
)
STALLED: Final = story(StoryStep(10.0, "stall", "home-1", 300.0), say(20.0), say(50.5))

# In these a plane that was right had findings, or one that was wrong: of seeds 479, 367, 149 and 767.
KILLED: Final = story(
    StoryStep(10.0, "takeover", "home-1"),
    StoryStep(11.0, "stall", "home-1", 300.0),
    say(20.0),
    StoryStep(21.0, "takeover", "home-1"),
    say(22.0),
)
BROKEN: Final = story(
    StoryStep(30.0, "cut", "home-1", 200.0),
    say(37.0),
    StoryStep(60.0, "disk-broken", "home-1", 150.0),
    *(say(61.0, MOTION), say(64.0, MOTION)),
)
FLAPPING: Final = story(
    StoryStep(0.0, "drill", "timers", text="slow"),
    StoryStep(0.0, "no-reconciler", "presence-reconciler"),
    order=21,
)


PAUSED: Final = story(
    StoryStep(1.0, "put", "family-app", text=TO_ENDPOINT),
    StoryStep(40.0, "endpoint", ENDPOINTS[0], 60.0, "429 30"),
    StoryStep(45.0, "throttle", "put_item", 5.0),
    *(say(47.0), say(60.0), say(60.02)),
)


ROLLED_OUT: Final = story(
    StoryStep(5.0, "roll-out", "home-1", 250.0, f"{ALARMS} "),
    *(say(at_s) for at_s in (20.0, 120.0, 180.0)),
    # It goes away before it is told that the candidate was given up.
    StoryStep(240.0, "cut", "home-1", 150.0),
    *(say(at_s) for at_s in (270.0, 300.0, 420.0)),
)
TAKEN_UP: Final = story(
    StoryStep(5.0, "roll-out", "home-1", 150.0, f"{ALARMS} {TAKEN}"),
    *(say(at_s) for at_s in (20.0, 120.0, 280.0)),
)


@pytest.mark.parametrize("seed", range(10))
def test_a_history_breaks_no_promise(seed: int) -> None:
    assert told(story_of(seed), shipped_contract()).findings == []


def test_a_history_leaves_no_task_in_memory() -> None:
    def waiting() -> int:
        gc.collect()
        return sum(isinstance(each, Fiber) and not each.is_over for each in gc.get_objects())

    before = waiting()
    told(story(say(5.0)), shipped_contract())
    # A task that has not ended holds all of its history, and no collection of garbage frees it.
    assert waiting() <= before


def test_what_programs_share_changes_nothing() -> None:
    alone, together = (History(story_of(2), shipped_contract()) for _ in range(2))
    alone.run()
    assert findings_of(together) == judged(alone)
    assert together.engine.notes == alone.engine.notes


def test_a_shared_error_names_its_file(tmp_path: Path) -> None:
    with shared():
        for file in (tmp_path / "first", tmp_path / "second"):
            file.write_text("{}")
            found = read_contract(file)
            assert isinstance(found, SettingProblem)
            assert str(file) in found.problem


def test_an_hours_outage_makes_no_dead_letter() -> None:
    outages = [StoryStep(10.0, "dependency-down", each, DOWN_S) for each in READERS]
    said = [say(12.0 + at / 10, kind) for at, kind in zip(range(10), cycle(sorted(SENDERS)), strict=False)]
    history = History(story(*outages, *said), shipped_contract()).run()
    assert judged(history) == []
    alarms = [times for (reader, *_), times in history.handled.done.items() if reader == "alarm-centre"]
    assert len(alarms) > 2
    assert all(len(times) == 1 and times[0] < 10.0 + DOWN_S + 60 for times in alarms)


STAGE, TAKE = Pairs.stage, Forwarder._take_acknowledged


def overwriting(self: Pairs, private_key: str, certificate: str) -> Path:
    self.drop(self.unproven())
    return STAGE(self, private_key, certificate)


def of_any_connection(self: Forwarder, message: Any, *more: Any) -> None:
    TAKE(self, message._replace(generation=self.links[message.link].generation), *more)


def delivered(self: WebhookService, message: Any, event: Any, _: object) -> Any:
    return self._record(message, event, Outcome.DELIVERED, None, 200)


def all_visible(queue: FakeQueue, now_ms: int) -> list[Any]:
    return [each for each in queue.messages if each.visible_ms <= now_ms]


LOCKED_OUT: Final = "a device is locked out"
IN_THE_END, AFTERWARDS = "a thief's key is good in the end", "a thief's key is good afterwards"
NOT_ROUTED: Final = "not routed as subscribed or published"
ROUTED_BY_NOBODY: Final = "routed as nobody subscribed or published"
JUDGES, REFRESH = Planner._judges, ActiveContract._refresh


def judged_by(*, first: bool) -> Any:
    """A router that judges all events by the first, or the last, of the versions in force."""

    def wrong(planner: Planner) -> dict[object, Any]:
        found = [*JUDGES(planner).values()]
        return {None: found[0 if first else -1]}

    return wrong


def without_end(in_force: ActiveContract[RoutingEngine]) -> None:
    """A router that does not see the end of a roll-out."""
    offered = in_force._offered
    REFRESH(in_force)
    in_force._offered = in_force._offered or offered


@pytest.mark.parametrize(
    ("made", "owner", "name", "wrong", "kinds"),
    [
        *(
            (each, service, "recovered", service.recovered, set())
            for each in (
                THEFT,
                CLAIM,
                KEPT,
                PROOF,
                IN_FLIGHT,
                THROTTLED,
                EVICTED,
                SUBSCRIBED,
                ORDERED,
                GIVEN_UP,
                STALLED,
                KILLED,
                BROKEN,
                FLAPPING,
                PAUSED,
                ROLLED_OUT,
                TAKEN_UP,
            )
        ),
        (PROOF, Pairs, "stage", overwriting, {LOCKED_OUT}),
        (THEFT, Renewal, "_is_refused", lambda _: False, {LOCKED_OUT}),
        (CLAIM, CertificateRotation, "_retire", lambda *_: None, {IN_THE_END}),
        (THROTTLED, CertificateRotation, "_retire", lambda *_: None, {IN_THE_END, AFTERWARDS}),
        (THEFT, service, "recovered", lambda device, *_: device, {IN_THE_END, AFTERWARDS}),
        (SUBSCRIBED, Breaker, "pause", lambda _: None, {"posted in the pause of a 429"}),
        (SUBSCRIBED, SubscriptionTable, "all", lambda _: frozenset(), {NOT_ROUTED}),
        (SUBSCRIBED, ActiveContract, "_refresh", lambda _: None, {NOT_ROUTED}),
        (ROLLED_OUT, Planner, "_judges", judged_by(first=True), {NOT_ROUTED}),
        (ROLLED_OUT, Planner, "_judges", judged_by(first=False), {ROUTED_BY_NOBODY}),
        (ROLLED_OUT, ActiveContract, "_refresh", without_end, {ROUTED_BY_NOBODY}),
        (SUBSCRIBED, WebhookService, "_failed", delivered, {"never at its endpoint"}),
        (SUBSCRIBED, SubscriptionTable, "write", lambda _, each: each, {"not subscribed as last asked for"}),
        (ORDERED, FakeSqs, "_receivable", staticmethod(all_visible), {"handled out of order"}),
        (STALLED, Forwarder, "_take_acknowledged", of_any_connection, {"ended before the cloud had it"}),
    ],
)
def test_a_wrong_plane_is_found_and_a_right_one_is_not(
    monkeypatch: pytest.MonkeyPatch, made: Story, owner: Any, name: str, wrong: Any, kinds: set[str]
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    found = {each.kind for each in told(made, shipped_contract()).findings}
    assert found >= kinds
    assert bool(found) == bool(kinds)


def test_a_timer_that_failed_comes_again() -> None:
    """Its sixth attempt fails at its second call, so it waits for longer than histories go on in any case."""
    refused = (StoryStep(59.0 + 180.0 * k, "refuse", "timers", 1 if k < 5 else 2) for k in range(6))
    made = story(StoryStep(0.0, "no-reconciler", "presence-reconciler"), *refused, order=1)
    assert told(made, shipped_contract()).findings == []


def test_an_answer_without_the_table() -> None:
    posts = [
        Post(at_s, "", "", at_s, status, 0.0) for at_s, status in ((1.0, 410), (2.0, 410), (3601.5, 204))
    ]
    assert list(posted.paused("", posts, 1.5, is_bad=True)) == []
    assert len(list(posted.paused("", posts, 1.5, is_bad=False))) == 1


def test_a_route_that_ends_while_sending_fails() -> None:
    added, ended = RouteChange("second", "a.", 0.0, 1.0), RouteChange("second", None, 95.0, 96.0)
    records = [
        {"route": "other", "type": "a.b", "decided_at_ms": (START_S + at_s) * 1_000} for at_s in (50.0, 100.0)
    ]
    assert list(subscribed.routed("second", [added, ended], ("source", "id"), records)) == []
    assert len(list(subscribed.routed("second", [added], ("source", "id"), records))) == 1


def test_a_story_is_cut_to_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    lost, allowed = CLAIM.decisions[:2]

    def told_again(those: Story, _: Any) -> Told:
        kinds = ["left in the spool"] * (lost in those.decisions) + [LOCKED_OUT] * (
            allowed not in those.decisions
        )
        return Told([OracleFinding(kind, "") for kind in kinds], {}, 0.0)

    monkeypatch.setattr(search, "told", told_again)
    cut = minimized(CLAIM, "left in the spool", shipped_contract(), lambda: True)
    assert cut.decisions == (lost, allowed)
