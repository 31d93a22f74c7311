"""Roll-outs in a small simulated fleet: they go to the end, or back; broken off, they go on."""

from collections.abc import Callable, Mapping

import pytest

from contract.promises import less_promised
from contract.publish import CandidateError, ContractPublisher, OvertakenError, PublishError
from contract.rollout import ROLLOUT_KEY, RolloutPhase
from eventplane.contract import Contract
from lab.histories.search import shipped
from lab.rollout.changes import HARMFUL, HARMLESS
from lab.rollout.trial import Trial, TrialFleet, TrialResult, uncompared
from operations.rollout import (
    InProgressError,
    LessPromisedError,
    NoRolloutError,
    OtherNameError,
    RolloutRunner,
)
from tests.small_contract import with_changes

pytestmark = pytest.mark.long

SMALL = Trial(homes=6, shares=(50.0, 100.0), others=3, before_s=900.0, stage_s=900.0)
SCHEMA = "a schema asks for what readings do not have"


def fleet(changes: dict[str, object] | None = None) -> TrialFleet:
    """Return a fleet for a harmless change; a harmful one is judged by the gates alone."""
    new = with_changes(shipped(), changes or HARMLESS["a route at home more"])
    return TrialFleet(SMALL, shipped(), new, uncompared if changes else less_promised)


def followed(fleet: TrialFleet) -> set[str]:
    return {each.forwarder.contract.version for each in fleet.homes.values() if each.forwarder}


def test_a_harmless_change_reaches_all() -> None:
    seen: list[tuple[str, int]] = []

    def visit(fleet: TrialFleet) -> None:
        found = fleet.runner.found()
        assert found is not None
        seen.append((found.stages[found.stage], len(followed(fleet))))
        # Another process goes on, which knows nothing.
        fleet.runner = RolloutRunner(fleet.plane)
        if found.phase is RolloutPhase.WATCHING:
            assert fleet.start() == found
            publisher = ContractPublisher(fleet.plane.deployment, fleet.plane.tables, fleet.plane.now)
            with pytest.raises(CandidateError):
                publisher.publish(shipped())

    tried = fleet()
    result = tried.run("", visit)
    assert (result.phase, result.findings) == (RolloutPhase.DONE, ())
    assert ("50 %", 2) in seen
    head = tried.runner.head()
    assert head is not None
    (version,) = followed(tried)
    assert (head.version, head.candidate) == (version, None)
    left = [each["id"]["S"] for each in tried.cloud.dynamodb.peek("contracts")]
    assert [each for each in left if each.startswith("rollout/")] == []
    with pytest.raises(NoRolloutError):
        tried.runner.step()


def test_a_harmful_change_goes_back() -> None:
    result = fleet(dict(HARMFUL[SCHEMA])).run("")
    assert (result.phase, result.reached, result.is_restored) == (RolloutPhase.WENT_BACK, 50.0, True)
    assert any("health.reading.v1" in each for each in result.why)


def test_a_device_that_refuses_says_why() -> None:
    result = fleet(dict(HARMFUL["the call service gets no alarms"])).run("")
    assert (result.phase, result.is_restored) == (RolloutPhase.WENT_BACK, True)
    assert "it takes alarms away" in result.why[0]


def once(act: Callable[[TrialFleet], object]) -> Callable[[TrialFleet], None]:
    done: list[int] = []

    def visit(fleet: TrialFleet) -> None:
        if fleet.engine.now_s > SMALL.before_s + 120.0 and not done:
            done.append(1)
            act(fleet)

    return visit


def test_a_person_goes_back_and_begins_again() -> None:
    tried = fleet()
    phases: list[RolloutPhase] = []

    def visit(fleet: TrialFleet) -> None:
        found = fleet.runner.found()
        assert found is not None
        phases.append(found.phase)
        if fleet.engine.now_s > SMALL.before_s + 120.0 and RolloutPhase.GOING_BACK not in phases:
            assert len(followed(fleet)) == 2
            phases.append(fleet.runner.go_back("for once").phase)
        elif found.phase is RolloutPhase.WENT_BACK:
            assert followed(fleet) == {shipped().version}
            # The same contract once more is another roll-out, of which no device has anything.
            again = fleet.start()
            assert again.began_ms > found.began_ms

    result: TrialResult = tried.run("", visit)
    assert result.phase is RolloutPhase.DONE
    assert len(followed(tried)) == 1


def test_two_at_once() -> None:
    def act(fleet: TrialFleet) -> None:
        other = RolloutRunner(fleet.plane)
        stale = fleet.plane.tables.get("contracts", {"id": {"S": ROLLOUT_KEY}})
        other.step()
        read = fleet.plane.tables.get
        fleet.plane.tables.get = (  # type: ignore[method-assign]
            lambda table, key: stale if key == {"id": {"S": ROLLOUT_KEY}} else read(table, key)
        )
        with pytest.raises(OvertakenError):
            fleet.runner.step()
        fleet.plane.tables.get = read  # type: ignore[method-assign]
        with pytest.raises(InProgressError, match="go-back"):
            _start(fleet, with_changes(shipped(), HARMLESS["another description"]))
        fleet.runner.go_back("enough", is_final=True)

    assert fleet().run("", once(act)).phase is RolloutPhase.WENT_BACK


def _start(fleet: TrialFleet, new: Contract) -> object:
    found = fleet.runner.found()
    assert found is not None
    return fleet.runner.start(new, shipped(), "", found.stages, found.limits)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"name": "other"}, OtherNameError),
        (HARMFUL["relatives see no movements"], LessPromisedError),
        ({"participants/night-watch": {"kind": "cloud_service", "description": "d"}}, PublishError),
    ],
)
def test_what_is_not_begun(changes: Mapping[str, object], error: type[PublishError]) -> None:
    tried = fleet()
    new = with_changes(shipped(), changes)
    with pytest.raises(error):
        tried.runner.start(new, shipped(), "", tried.stages, tried.limits)
    assert tried.runner.found() is None
    assert tried.runner.head() is None
