"""`eventplane contract rollout`: what is not begun, and what is read of the archive."""

from dataclasses import replace
from datetime import UTC, datetime
from os import urandom
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from contract.publish import Baseline, ContractPublisher, NoCandidateError
from contract.rollout import ContractRollout, RolloutPhase, StageEvidence, StageLimits
from eventplane.contract import Contract, compile_contract
from eventplane.contract.publication import KEY, cloud_destinations
from eventplane.contract.subscription import Subscription, with_subscriptions
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_record import Device, LifecycleState
from eventplane.device_reports import ACKNOWLEDGED, DEVICE_CONTRACT, DISCARDED, forwarder_source
from eventplane.downlink.table import DESIRED
from eventplane.envelope import Envelope, write_event
from eventplane.ledger import CONTRACTS, LEDGER, TAP, LedgerRecord, TapRecord, to_line
from eventplane.names import FOLLOWED_CONTRACT
from eventplane.reasons import Outcome
from eventplane.records import Records
from eventplane.values import timestamp_of_ms
from eventplane_aws.tables import DynamoDbTables
from operations import rollout_command
from operations.archive import FolderArchive
from operations.rehearse_command import is_derived
from operations.rollout import DeployedSinceError, NoContractSenderError, RolloutPlane, RolloutRunner
from operations.rollout_command import document, lines
from operations.rollout_evidence import EvidenceReader
from tests.dynamodb import create_desired_table, create_table
from tests.fakes.aws import FakeAws
from tests.small_contract import small_document, with_changes
from tests.unit.operations.support import Folder, Run

ALARM, NOTE = "org.example.alarm.v1", "org.example.note.v1"
OLD = compile_contract(
    small_document(
        {
            "device": {"kind": "device", "inbox": {}},
            "bell": {"kind": "device_service", "sends": [ALARM, NOTE]},
            "desk": {"kind": "cloud_service", "sends": []},
            "shop": {"kind": "cloud_service", "sends": []},
            "operations": {
                "kind": "cloud_service", "sends": [DEVICE_CONTRACT], "may_address": "everyone",
            },
        },
        {
            "up": ({"prefix": {"type": "org."}}, "device.outbox"),
            "alarms": ({"exact": {"type": ALARM}}, "desk.inbox"),
            "alarms-too": ({"exact": {"type": ALARM}}, "shop.inbox"),
            "notes": ({"exact": {"type": NOTE}}, "shop.inbox"),
            "letters": ({"exact": {"type": DEAD_LETTER_TYPE}}, "operations.inbox"),
        },
        {ALARM: {"priority": "urgent"}, NOTE: {}},
    ),
    "small",
)  # fmt: skip
NEW = with_changes(OLD, {"routes/notes-too": {"filter": {"exact": {"type": NOTE}}, "to": "desk.inbox"}})
NOW_MS = 1_767_270_000_000
BEGAN_MS, STAGE_MS = NOW_MS - 1_200_000, NOW_MS - 600_000


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)


@pytest.fixture
def plane(fake_aws: FakeAws, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> RolloutPlane:
    """A plane of `OLD` without devices, whose archive is the folder."""
    create_table(fake_aws.dynamodb, "contracts", KEY)
    create_desired_table(fake_aws.dynamodb, "desired")
    tables = DynamoDbTables(fake_aws.dynamodb, urandom)
    queues = {each.address: f"https://queue/{each.participant}" for each in cloud_destinations(OLD)}
    plane = RolloutPlane(
        Baseline(OLD.version, queues, "contracts"),
        tables,
        list,
        Records(tables, "desired", DESIRED),
        FolderArchive(folder.root),
        lambda *_: None,
        lambda: None,
        lambda: datetime.now(UTC),
    )
    monkeypatch.setattr(rollout_command, "_plane", lambda *_: plane)
    monkeypatch.setattr(rollout_command, "enter", lambda _: FakeCloud(tables))
    return plane


class FakeCloud:
    def __init__(self, tables: DynamoDbTables) -> None:
        self.tables = tables


@pytest.fixture
def roll(run: Run, folder: Folder, tmp_path: Path) -> Any:
    def roll(new: Contract | str, *words: str, is_old_known: bool = True) -> tuple[int, str, str]:
        files = {"new": new, "old": OLD}
        for name, each in files.items():
            if isinstance(each, Contract):
                (tmp_path / f"{name}.json").write_bytes(each.canonical)
        what = new if isinstance(new, str) else str(tmp_path / "new.json")
        old = ["--old", str(tmp_path / "old.json")] if is_old_known else []
        return run("contract", "rollout", what, *old, *folder.named, *words)

    return roll


def test_there_is_none(plane: RolloutPlane, roll: Any) -> None:
    for what in ("status", "go-back"):
        status, _, err = roll(what)
        assert (status, "no contract is being rolled out" in err) == (2, True)


@pytest.mark.parametrize("words", [("--shares", "5,25"), ("--shares", "5,1,100"), ("--shares", "x")])
def test_wrong_stages(plane: RolloutPlane, roll: Any, words: tuple[str, ...]) -> None:
    assert roll(NEW, *words)[0] == 2
    assert RolloutRunner(plane).found() is None


def test_no_such_file(plane: RolloutPlane, roll: Any) -> None:
    status, _, err = roll("nothing.yaml")
    assert (status, "nothing.yaml is no file" in err) == (2, True)


def test_a_contract_in_force_that_nobody_has(plane: RolloutPlane, roll: Any) -> None:
    status, _, err = roll(NEW, is_old_known=False)
    assert (status, "name its file by --old" in err) == (2, True)


def test_a_proven_loss_is_not_begun(plane: RolloutPlane, roll: Any) -> None:
    status, _, err = roll(with_changes(OLD, {"routes/alarms": None, "routes/alarms-too": None}))
    assert (status, "no route leads it to a reader" in err) == (2, True)
    assert RolloutRunner(plane).found() is None


def test_a_step_that_fails_is_tried_again(
    plane: RolloutPlane, roll: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [ClientError({"Error": {"Code": "ThrottlingException"}}, "GetItem") for _ in range(2)]
    slept = list[float]()
    step = RolloutRunner.step

    def fails(runner: RolloutRunner) -> ContractRollout:
        if failures:
            raise failures.pop()
        return step(runner)

    monkeypatch.setattr(RolloutRunner, "step", fails)
    monkeypatch.setattr(rollout_command.system, "sleep", slept.append)
    assert roll(NEW)[0] not in (0, 3)
    status, _, err = roll(NEW, "--watch")
    assert (status, slept, "tried again in 15 s" in err) == (0, [15.0], True)


def test_what_is_promised_less_is_not_begun(plane: RolloutPlane, roll: Any) -> None:
    less = with_changes(OLD, {"routes/notes": None})
    status, _, err = roll(less)
    assert (status, "--accept reader:org.example.note.v1:shop.inbox" in err) == (2, True)
    assert RolloutRunner(plane).found() is None
    assert roll(less, "--accept", "reader:*:shop.inbox", "--watch")[0] == 0


def test_a_rehearsed_loss_is_not_begun(plane: RolloutPlane, roll: Any, folder: Folder) -> None:
    now_ms = int(datetime.now(UTC).timestamp() * 1_000)
    event, today = sent("1", ALARM, now_ms), f"{at(now_ms):%Y-%m-%d}"
    folder.write(TAP, [tapped(event, now_ms)], today)
    folder.write(LEDGER, [decided(event, now_ms)], today)
    folder.put(f"{CONTRACTS}/{OLD.version}.json", OLD.canonical)
    status, _, err = roll(with_changes(OLD, {"routes/alarms": None}), is_old_known=False)
    assert (status, "alarms org.example.alarm.v1 do not reach desk.inbox" in err) == (2, True)
    # The same archive has nothing against another one, which ends at once: there are no devices.
    status, out, _ = roll(NEW, "--watch", "--json", is_old_known=False)
    assert status == 0
    assert f'"judged_by": "{OLD.version}"' in out
    assert roll("status")[0] == 0


def begun(plane: RolloutPlane) -> RolloutRunner:
    runner = RolloutRunner(plane)
    runner.start(NEW, OLD, "", ("100 %",), StageLimits())
    return runner


def test_nothing_is_sent_before_routers_know(plane: RolloutPlane) -> None:
    sent, now_ms = list[str](), [NOW_MS + 999]
    home = Device(thing="home-1", state=LifecycleState.PROVISIONED, changed_at_ms=0, since_ms=0)
    plane = replace(
        plane,
        fleet=lambda: [home],
        send=lambda _, event: sent.append(event.id),
        now=lambda: at(now_ms[0]),
    )
    assert begun(plane).step().lacked == ("30 s until every router knows it",)
    # Broken off and begun again, also by another one, it waits no longer, and no less.
    now_ms[0] += 29_000
    begun(plane).step()
    assert sent == []
    now_ms[0] += 2_000
    assert begun(plane).step().devices == 1
    assert sent == [f"rollout-home-1-{now_ms[0]}"]


def test_a_deployment_in_between(plane: RolloutPlane) -> None:
    first = begun(plane)
    other = RolloutRunner(replace(plane, deployment=replace(plane.deployment, base="other")))
    with pytest.raises(DeployedSinceError, match="go-back"):
        other.step()
    assert other.go_back("it was deployed").phase is RolloutPhase.WENT_BACK
    head = first.head()
    assert head is not None
    assert head.candidate is None


def test_a_head_without_the_candidate(plane: RolloutPlane) -> None:
    runner = begun(plane)
    ContractPublisher(plane.deployment, plane.tables, plane.now).go_back(NEW.version)
    with pytest.raises(NoCandidateError):
        runner.step()
    assert runner.go_back("somebody published").phase is RolloutPhase.WENT_BACK


def test_nobody_may_send_contracts(plane: RolloutPlane) -> None:
    silent = with_changes(OLD, {"participants/operations/sends": []})
    with pytest.raises(NoContractSenderError, match="0 cloud services send"):
        RolloutRunner(plane).start(NEW, silent, "", ("100 %",), StageLimits())


def test_a_contract_with_subscriptions_is_the_same() -> None:
    subscribed = with_subscriptions(
        with_changes(OLD, {"participants/shop/may_subscribe": {"exact": {"type": NOTE}}}),
        [Subscription("shop", "mine", '{"exact": {"type": "org.example.note.v1"}}', "", "")],
    )[0]
    former = with_changes(OLD, {"participants/shop/may_subscribe": {"exact": {"type": NOTE}}})
    assert subscribed.version != former.version
    assert is_derived(subscribed, former)
    assert not is_derived(NEW, OLD)


# Evidence


def sent(id: str, type: str, at_ms: int, by: str = "bell", **more: Any) -> Envelope:
    source = forwarder_source("home-1") if by == "device" else "/bell"
    stamped = {"recordedtime": timestamp_of_ms(at_ms - 200), "senderservice": by}
    data = more.pop("data", {"value": 1})
    attributes = {"id": id, "source": source, "type": type, **stamped, **more}
    return write_event({name: each for name, each in attributes.items() if each is not None}, data)


def tapped(event: Envelope, at_ms: int, thing: str = "home-1") -> str:
    return to_line(TapRecord(at_ms, at_ms + 1_000, thing, "t", f"m-{event.id}", 0, event.json, None, None))


def decided(event: Envelope, at_ms: int, thing: str = "home-1", **more: Any) -> str:
    members: dict[str, Any] = {
        "decided_at_ms": at_ms + 40, "entered_at_ms": at_ms, "entered_by": "device.outbox",
        "contract_version": OLD.version, "source": event.source, "id": event.id, "type": event.type,
        "priority": "urgent", "client_id": thing, "route": "alarms", "destination": "desk.inbox",
        "outcome": Outcome.DELIVERED, "reason": None, "attempt": 1, "message_id": "m",
        "sender": f"{thing}/bell",
    }  # fmt: skip
    return to_line(LedgerRecord(**{**members, **more}))


def evidence(folder: Folder, tap: list[str], ledger: list[str]) -> StageEvidence:
    day = f"{at(NOW_MS):%Y-%m-%d}"
    folder.write(TAP, tap, day)
    folder.write(LEDGER, ledger, day)
    reader = EvidenceReader(FolderArchive(folder.root), rollout(), OLD, NEW, frozenset({"home-1"}))
    found = reader.read(at(NOW_MS))
    # What was read once is not counted again.
    assert reader.read(at(NOW_MS)) == found
    return found


def rollout(**more: Any) -> ContractRollout:
    members: dict[str, Any] = {
        "base": OLD.version, "version": NEW.version, "former": OLD.version, "judged_by": "",
        "stages": ("5 %", "100 %"), "limits": StageLimits(), "began_ms": BEGAN_MS, "stage_ms": STAGE_MS,
    }  # fmt: skip
    return ContractRollout(**{**members, **more})


UNDER = {FOLLOWED_CONTRACT: NEW.version}


def test_whose_an_event_is_and_when(folder: Folder) -> None:
    hour_ms = 3_600_000
    moments = {"long ago": BEGAN_MS - 2 * hour_ms, "before": BEGAN_MS - 10, "between": STAGE_MS - 10}
    tap = [tapped(sent(name, NOTE, ms, **UNDER), ms) for name, ms in moments.items()]
    tap += [tapped(sent("now", ALARM, STAGE_MS + 10, **UNDER), STAGE_MS + 10)]
    # It says when it happened, and not when it was recorded.
    happened = {"recordedtime": None, "time": timestamp_of_ms(STAGE_MS - 190)}
    tap += [tapped(sent("other", NOTE, STAGE_MS + 10, **happened), STAGE_MS + 10, "home-2")]
    tap += [tapped(sent("other before", NOTE, BEGAN_MS - 10), BEGAN_MS - 10, "home-2")]
    found = evidence(folder, tap, [decided(sent("now", ALARM, STAGE_MS), STAGE_MS + 10)])
    populations = found.before, found.stage, found.others, found.others_before
    assert [each.events for each in populations] == [1, 1, 1, 1]
    assert (found.events, found.alarms, found.following) == (1, 1, {"home-1"})
    assert (found.stage.up_ms, found.stage.decided_ms) == ([200], [40])
    assert (found.tally.events, found.decided) == (1, 0)
    assert found.others.waits == {("up_ms", NOTE): {"": {2: 1}}}
    assert found.stage.waits == {}


def test_what_became_of_events(folder: Folder) -> None:
    now_ms = STAGE_MS + 10
    note = sent("1", NOTE, now_ms, **UNDER)
    lost = {"outcome": "expired", "reason": "by_channel", "destination": "device.outbox", "count": 3}
    answer = {
        "kind": "state", "key": "contract/device/small", "uid": "", "version": "7", "order": "0",
        "fence": "0", "sender": "operations", "source": "/rollout", "id": "x", "result": "rejected",
        "reason": "contract_refused", "detail": "it takes alarms away",
    }  # fmt: skip
    tap = [
        tapped(sent("2", DISCARDED, now_ms, "device", data={"deliveries": [lost]}), now_ms),
        tapped(
            sent("3", ACKNOWLEDGED, now_ms, "device", data={"acknowledged": [answer], "epoch": "e"}), now_ms
        ),
        tapped(sent("4", DEAD_LETTER_TYPE, now_ms, "device", deadletterreason="not_an_event"), now_ms),
        tapped(note, now_ms),
    ]
    refused = {"outcome": Outcome.DEAD_LETTERED, "reason": "payload_invalid", "destination": None}
    others = [decided(note, now_ms, contract_version=each) for each in (NEW.version, "0" * 16)]
    found = evidence(folder, tap, [decided(note, now_ms, priority="normal", **refused), *others])
    assert found.decided == 1
    assert {what: dict(things) for what, things in found.stage.ended.items()} == {
        "dead lettered: payload_invalid": {"home-1": 1},
        "expired at home: by_channel": {"home-1": 3},
        "dead-lettered at home: not_an_event": {"home-1": 1},
    }
    assert found.rejected == {"home-1": "it takes alarms away"}


# Words


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (RolloutPhase.WATCHING, "go on: rollout NEW --watch"),
        (RolloutPhase.UNPROVEN, "let it pass: rollout NEW --proceed --watch; or go back: rollout go-back"),
        (RolloutPhase.GOING_BACK, "2 devices still have it"),
        (RolloutPhase.WENT_BACK, "all devices follow what they followed before"),
        (RolloutPhase.DONE, "it is in force for all"),
    ],
)
def test_words(phase: RolloutPhase, words: str) -> None:
    found = rollout(phase=phase, stored=2, why=tuple("abcdefg"))
    text = "\n".join(lines(found, lambda *typed: " ".join(["rollout", *typed])))
    assert words in text
    assert ("and 2 more" in text) is (phase not in (RolloutPhase.WATCHING, RolloutPhase.DONE))
    assert document(found)["began"] == f"{at(BEGAN_MS):%Y-%m-%d %H:%M:%S}.000"
