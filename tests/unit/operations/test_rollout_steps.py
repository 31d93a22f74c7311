"""The steps of a roll-out: broken off at each call, with a large fleet, and with devices that leave it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from os import urandom
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from contract.publish import Baseline
from contract.rollout import MEMBERS_A_PAGE, ROLLOUT, ROLLOUT_KEY, ContractRollout, RolloutPhase, StageLimits
from eventplane.contract import Downlink
from eventplane.contract.publication import KEY, cloud_destinations
from eventplane.device_record import REGISTRY, Device, LifecycleState
from eventplane.downlink.desired import Desired, KeyedEvent
from eventplane.downlink.table import DESIRED
from eventplane.envelope import Envelope
from eventplane.records import Records
from eventplane_aws.tables import DynamoDbTables
from operations.archive import FolderArchive
from operations.rollout import EmptyGroupError, RolloutPlane, RolloutRunner
from tests.dynamodb import create_desired_table, create_table
from tests.fakes.dynamodb import FakeDynamoDb
from tests.unit.operations.test_rollout_command import NEW, NOW_MS, OLD

pytestmark = pytest.mark.long

SHORT = StageLimits(watch_s=100, events=0, alarms=0)


class Fleet:
    """`homes` devices, which store what they are sent at once; call number `fails` of all is throttled."""

    def __init__(self, homes: int, archive: Path) -> None:
        self.now_ms = NOW_MS
        self.calls: Counter[str] = Counter()
        self.fails = 0
        self.is_done = False
        """Whether the call that fails is made, and only its answer lost."""
        dynamodb = FakeDynamoDb()
        dynamodb.checks = False
        create_table(dynamodb, "contracts", KEY)
        create_table(dynamodb, "fleet", *REGISTRY.key)
        create_desired_table(dynamodb, "desired")
        self.dynamodb, self._tables = dynamodb, DynamoDbTables(dynamodb, urandom)
        self.registry = Records(self._tables, "fleet", REGISTRY)
        self.desired = Records(self._tables, "desired", DESIRED)
        for number in range(homes):
            self.change(f"home-{number}", LifecycleState.PROVISIONED)
        queues = {each.address: f"https://queue/{each.participant}" for each in cloud_destinations(OLD)}
        tables: Any = self
        self.plane = RolloutPlane(
            Baseline(OLD.version, queues, "contracts"),
            tables,
            lambda: Records(tables, "fleet", REGISTRY).all(),
            Records(tables, "desired", DESIRED),
            FolderArchive(archive),
            self.send,
            lambda: None,
            lambda: datetime.fromtimestamp(self.now_ms / 1_000, UTC),
        )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a call of the tables, which is counted and may fail."""
        made = getattr(self._tables, name)
        return made if name == "first" else lambda *words, **more: self._call(name, made, *words, **more)

    def _call(self, name: str, made: Callable[..., Any], *words: Any, **more: Any) -> Any:
        self.calls[name] += 1
        if fails := self.calls.total() == self.fails:
            self.fails = 0
        if fails and not self.is_done:
            raise throttled(name)
        found = made(*words, **more)
        if fails:
            raise throttled(name)
        return found

    def change(self, thing: str, state: LifecycleState) -> None:
        self.registry.force(Device(thing=thing, state=state, changed_at_ms=0, since_ms=0))

    def send(self, sender: str, event: Envelope) -> None:
        self._call("send", self._store, sender, event)

    def _store(self, sender: str, event: Envelope) -> None:
        values = {name: str(each) for name, each in event.attributes.items()}
        version, is_deleted = int(values["stateversion"]), "statedelete" in values
        message = KeyedEvent(
            uid="", version=version, is_deleted=is_deleted, sender=sender, source=event.source, id=event.id,
            text=event.json,
        )  # fmt: skip
        item = Desired(thing=values["todevice"], key=values["statekey"], kind=Downlink.STATE)
        if self.desired.read(item.thing, f"s#{item.key}") is None or version > self.version(item.thing)[0]:
            self.desired.force(replace(item, message=message, acknowledged_version=version))

    def version(self, thing: str) -> tuple[int, bool]:
        """Return the number of what a device has, and whether it is a contract."""
        item = self.desired.read(thing, f"s#contract/device/{OLD.name}")
        return (item.message.version, item.is_present) if item and item.message else (0, False)

    def type(self, *, until: RolloutPhase, stages: tuple[str, ...] = ("50 %", "100 %")) -> ContractRollout:
        """Type the command again until the roll-out is over, each time as another process."""
        for _ in range(40):
            self.now_ms += 40_000
            runner = RolloutRunner(self.plane)
            found: ContractRollout | None
            try:
                runner.start(NEW, OLD, "", stages, SHORT)
                found = runner.step()
                if (
                    until is RolloutPhase.WENT_BACK
                    and found.phase is RolloutPhase.WATCHING
                    and found.devices == 6
                ):
                    found = runner.go_back("harm that shows at the last stage")
            except ClientError:
                found = Records(self._tables, "contracts", ROLLOUT).read(ROLLOUT_KEY)
            if found and found.phase.is_over:
                return found
        raise AssertionError("it does not end")


def throttled(name: str) -> ClientError:
    return ClientError({"Error": {"Code": "ThrottlingException", "Message": "too many"}}, name)


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("end", [RolloutPhase.DONE, RolloutPhase.WENT_BACK])
def test_a_roll_out_is_broken_off_at_each_call(tmp_path: Path, end: RolloutPhase, is_done: bool) -> None:
    for fails in count(1):
        fleet = Fleet(6, tmp_path)
        fleet.fails, fleet.is_done = fails, is_done
        assert fleet.type(until=end).phase is end, fails
        is_over, fleet.fails = fleet.fails > 0, 0
        has_it = {fleet.version(f"home-{number}")[1] for number in range(6)}
        assert has_it == {end is RolloutPhase.DONE}, fails
        head = RolloutRunner(fleet.plane).head()
        assert head is not None
        assert (head.version, head.candidate) == ((NEW if has_it == {True} else OLD).version, None)
        if is_over:
            break
    assert fails > 40


def test_a_large_fleet(tmp_path: Path) -> None:
    fleet = Fleet(20_000, tmp_path)
    runner = RolloutRunner(fleet.plane)
    runner.start(NEW, OLD, "", ("5 %", "100 %"), StageLimits())
    fleet.now_ms += 40_000
    fleet.calls.clear()
    devices = runner.step().devices
    assert 900 < devices < 1_100
    pages = -(-devices // MEMBERS_A_PAGE)
    # The registry once, pages of members, and what devices are to follow in batches.
    assert (fleet.calls["send"], fleet.calls["put"], fleet.calls["get_many"]) == (devices, pages + 1, pages)
    assert fleet.calls["page"] == registry_pages(fleet)
    # Watching on, another look costs no more than what has changed.
    for _ in range(2):
        fleet.calls.clear()
        fleet.now_ms += 15_000
        assert (
            runner.step().stored == devices * (fleet.calls["get_many"] == 0)
            or fleet.calls["get_many"] == pages
        )
    assert fleet.calls.total() < 10
    fleet.calls.clear()
    assert runner.go_back("enough").phase is RolloutPhase.GOING_BACK
    assert (fleet.calls["send"], fleet.calls["page"], fleet.calls["get_many"]) == (devices, 0, pages)
    assert RolloutRunner(fleet.plane).step().phase is RolloutPhase.WENT_BACK
    assert [each for each in fleet.dynamodb.items("contracts") if each[KEY]["S"].startswith("rollout/")] == []


def registry_pages(fleet: Fleet) -> int:
    fleet.calls.clear()
    list(fleet.plane.fleet())
    return fleet.calls["page"]


def test_devices_that_leave_while_it_goes_back(tmp_path: Path) -> None:
    fleet = Fleet(6, tmp_path)
    runner = RolloutRunner(fleet.plane)
    runner.start(NEW, OLD, "", ("100 %",), StageLimits())
    fleet.now_ms += 40_000
    assert runner.step().devices == 6
    fleet.change("home-1", LifecycleState.QUARANTINED)
    fleet.change("home-2", LifecycleState.DECOMMISSIONED)
    fleet.registry.discard("home-3")
    runner = RolloutRunner(fleet.plane)
    assert runner.go_back("harm").stored == 3
    assert runner.step().phase is RolloutPhase.WENT_BACK
    # One in quarantine may be released.
    assert [fleet.version(f"home-{each}")[1] for each in range(6)] == [False, False, True, True, False, False]


def test_a_group_that_nobody_is_in(tmp_path: Path) -> None:
    fleet = Fleet(6, tmp_path)
    with pytest.raises(EmptyGroupError, match="no device is in the group canary"):
        fleet.type(until=RolloutPhase.DONE, stages=("group canary", "100 %"))
    assert RolloutRunner(fleet.plane).found() is None
