"""The operator's commands for the fleet; disposal is in tests/integration/test_fleet_provisioning.py."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest

from edge.reports import Heading
from eventplane.device_record import FLEET_TABLE, REGISTRY, Candidate, Device, LifecycleState
from eventplane.device_reports import DISCARDED, HEARTBEAT
from eventplane.downlink import table as desired
from eventplane.presence import PRESENCE, Line, PresenceItem, Sighting, gone
from eventplane.presence import Heartbeat as PresenceHeartbeat
from eventplane.records import Records
from eventplane.resource_names import resource_name
from eventplane.values import timestamp_of_ms
from parts.fleet.access import DeviceAccess
from parts.fleet.lifecycle import made
from tests.dynamodb import create_table, records
from tests.fakes.aws import FakeAws
from tests.fakes.client import FakeClient
from tests.unit.operations.support import (
    ACCEPTED_MS,
    ENVIRONMENT,
    Folder,
    Plane,
    Run,
    RunJson,
    event,
    tap_line,
)

MADE_MS = 1_767_225_600_000
PROVISIONED = LifecycleState.PROVISIONED


class DeviceData(FakeClient):
    """AWS IoT's data plane with what is in `kept` of one device; `on_cut` is called when it is cut off."""

    service = "iot-data"

    def __init__(self) -> None:
        super().__init__()
        self.kept: set[str] = set()
        self.on_cut: Callable[..., object] = lambda *_: None

    def get_thing_shadow(self, **_: Any) -> Any:
        return self._look("shadow", "GetThingShadow")

    def delete_thing_shadow(self, **_: Any) -> Any:
        return self._remove("shadow", "DeleteThingShadow")

    def get_retained_message(self, **_: Any) -> Any:
        return self._look("retained", "GetRetainedMessage")

    def publish(self, *, payload: bytes, **_: Any) -> Any:
        assert payload == b""
        self.kept.discard("retained")
        return {}

    def delete_connection(self, *, clientId: str, cleanSession: bool, **_: Any) -> Any:  # noqa: N803
        self.on_cut(clientId, cleanSession)
        return self._remove("connection", "DeleteConnection")

    def _look(self, what: str, operation: str) -> Any:
        if what not in self.kept:
            raise self.refusal("ResourceNotFoundException", f"no {what}", operation)
        return {}

    def _remove(self, what: str, operation: str) -> Any:
        answer = self._look(what, operation)
        self.kept.remove(what)
        return answer


def table(name: str, environment: str = ENVIRONMENT) -> str:
    return resource_name(environment, name)


@pytest.fixture
def data(fake_aws: FakeAws) -> DeviceData:
    made = DeviceData()
    fake_aws.others["iot-data"] = made
    return made


@pytest.fixture
def registry(fake_aws: FakeAws, data: DeviceData) -> Records[Device]:
    client = fake_aws.dynamodb
    return records(client, table(FLEET_TABLE), REGISTRY)


def device(registry: Records[Device], thing: str = "home-1") -> Device:
    found = registry.read(thing)
    assert found is not None
    return found


@pytest.mark.lost_answers
def test_devices_are_registered_once(registry: Records[Device], run: Run, run_json: RunJson) -> None:
    assert run("fleet", "register", "home-1", "home-2")[1].splitlines() == [
        "home-1: registered",
        "home-2: registered",
    ]
    assert run("fleet", "register", "home-2")[:2] == (0, "home-2: was registered before\n")
    assert device(registry).state is LifecycleState.MADE
    assert run_json("fleet", "register", "home-3", "home-3") == [
        {"thing": "home-3", "is_new": True},
        {"thing": "home-3", "is_new": False},
    ]


def test_devices_are_listed(registry: Records[Device], run: Run, run_json: RunJson) -> None:
    for number in range(3, 0, -1):
        groups = frozenset({"north", "pilot"} if number == 2 else ())
        registry.write(replace(made(f"home-{number}", MADE_MS), groups=groups))
    registry.write(replace(made("home-4", MADE_MS), state=PROVISIONED))
    assert run("fleet", "list")[1].splitlines()[1:3] == [
        "home-1  made         2026-01-01 00:00:00.000  -",
        "home-2  made         2026-01-01 00:00:00.000  north pilot",
    ]
    for words, things in ((["--state", "provisioned"], ["home-4"]), (["--group", "north"], ["home-2"])):
        assert [each["thing"] for each in run_json("fleet", "list", *words)] == things
    _, out, err = run("fleet", "list", "--most", "1")
    assert ("home-1" in out, "home-2" in out) == (True, False)
    assert "3 more devices; show more with --most" in err
    for wrong in (["--most", "0"], ["--most", "x"], ["--state", "gone"]):
        assert run("fleet", "list", *wrong)[0] == 2


def test_a_device_is_shown(registry: Records[Device], run: Run, run_json: RunJson) -> None:
    registry.write(replace(made("home-1", MADE_MS), reason="gone\x1b[2J", groups=frozenset({"b", "a"})))
    shown = dict(line.split("  ", 1) for line in run("fleet", "show", "home-1")[1].splitlines())
    shown = {name: words.strip() for name, words in shown.items()}
    assert list(shown.items())[:6] == [
        ("thing", "home-1"),
        ("state", "made"),
        ("changed", "2026-01-01 00:00:00.000"),
        ("registrations", "0"),
        ("groups", "a b"),
        ("reason", "gone\\x1b[2J"),
    ]
    # The plane has neither a presence monitor nor an archive.
    assert set(list(shown.values())[6:]) == {"not reported"}
    document = run_json("fleet", "show", "home-1")
    assert (document["state"], document["groups"]) == ("made", ["a", "b"])
    assert document["connection"] is document["discarded"] is document["contract"] is None


HEARD_MS = MADE_MS + 12 * 3_600_000
FIGURES: dict[str, Any] = {
    "contract": "c0ffee",
    "oldest_urgent_s": 0.0,
    "oldest_normal_s": 180.0,
    "pending": 7,
}
NEWER: dict[str, Any] = {
    "image": "decade",
    "version": "0.4.0 (abc)",
    "pending_urgent": 0,
    "pending_normal": 3,
    "pending_low": 4,
    "oldest_low_s": 7_200.0,
    "disk_free_bytes": 1_500_000_000,
    "spool_pressure": 0.25,
    "on_disk": 1,
    "uptime_s": 7_200,
    "discards": 5,
    "dead_letters": 1,
    "refused": 0,
    "received_dropped": 0,
}


def reported(type: str, data: Any, number: int = 1, *, device: str = "home-1", late_s: float = 0.0) -> str:
    """The tap's line of a report that was accepted `late_s` after it was written."""
    time = timestamp_of_ms(ACCEPTED_MS - round(1_000 * late_s))
    return tap_line(Heading(device, "life-1", number, time).write(type, data).json, device=device)


def beat(figures: Any, **more: Any) -> str:
    return reported(HEARTBEAT, {"interval_s": 300, "figures": figures}, **more)


@pytest.fixture
def seen(registry: Records[Device], fake_aws: FakeAws) -> None:
    """`home-1` is connected, and was heard of at noon."""
    registry.write(made("home-1", MADE_MS))
    sighting, heard = Sighting(Line.CONNECTED, MADE_MS, 1, "s"), PresenceHeartbeat(HEARD_MS, 300.0)
    presence = records(fake_aws.dynamodb, table("presence"), PRESENCE)
    presence.write(PresenceItem("home-1", sighting=sighting, heartbeat=heard))


@pytest.mark.lost_answers
@pytest.mark.usefixtures("seen")
def test_what_a_device_reported_is_shown(folder: Folder, run: Run, run_json: RunJson) -> None:
    dropped = {
        "destination": "device.outbox",
        "outcome": "dropped",
        "reason": "full",
        "count": 3,
        "ranges": [],
    }
    refused = {"channel": "climate.outbox", "type": "t", "reason": "no_room", "count": 2}
    discarded = {"deliveries": [dropped, dropped], "not_stored": [refused]}
    lines = [
        beat({"contract": "old"}, number=1, late_s=9.0),
        *[reported(DISCARDED, discarded, number=2, late_s=60.0)] * 2,
        beat(FIGURES | NEWER, number=3, late_s=1.5),
        # Those of others: another device, and a service of this one.
        beat({"contract": "another's"}, device="home-10"),
        tap_line(event("f", HEARTBEAT).json),
    ]
    folder.write("tap", lines, "2026-01-01")
    status, out, _ = run("fleet", "show", "home-1", *folder.named)
    shown = [" ".join(line.split()) for line in out.splitlines()][4:]
    assert (status, shown) == (0, [
        "connection connected since 2026-01-01 00:00:00.000",
        "heartbeat 2026-01-01 12:00:00.000, every 5 min; its figures are of 2026-01-01 00:00:00.000",
        "backlog 7 pending",
        "urgent backlog 0 pending",
        "normal backlog 3 pending, the oldest for 3 min",
        "low backlog 4 pending, the oldest for 2 h",
        "contract c0ffee",
        "image decade",
        "version 0.4.0 (abc)",
        "clock behind by 1.5 s at most",
        "disk 1.5 GB free, the spool is 25% full",
        "counted 5 deliveries ended, 1 dead letters, 0 refused for want of room, "
        "0 dropped before they were stored; started 2 h before",
        "discarded 6 dropped at device.outbox: full",
        "discarded 2 not stored at climate.outbox: no_room",
    ])  # fmt: skip
    document = run_json("fleet", "show", "home-1", *folder.named)
    assert document["connection"] == {"state": "connected", "since_ms": MADE_MS, "cause": None}
    assert (document["heartbeat_ms"], document["clock_ahead_ms"]) == (HEARD_MS, -1_500)
    assert document["backlog"]["low"] == {"pending": 4, "oldest_s": 7_200.0}
    assert document["discarded"][1] == {
        "outcome": "not stored", "reason": "no_room", "where": "climate.outbox", "count": 2
    }  # fmt: skip


@pytest.mark.parametrize(
    "figures",
    [
        FIGURES,
        FIGURES | dict.fromkeys(NEWER, "") | {"image": "x" * 300},
        FIGURES | dict.fromkeys(NEWER, True),
        FIGURES | dict.fromkeys(NEWER, -1) | {"version": ["1"]},
        FIGURES | dict.fromkeys(NEWER, 10**400) | {"image": {}, "version": 1},
    ],
    ids=["an older forwarder", "texts", "truths", "negative", "beyond all numbers"],
)
@pytest.mark.usefixtures("seen")
def test_unreported_is_said(folder: Folder, run: Run, run_json: RunJson, figures: dict[str, Any]) -> None:
    odd = {"deliveries": ["x", {"outcome": 1}], "not_stored": {"channel": "c"}}
    folder.write("tap", [beat(figures), reported(DISCARDED, odd, number=2)], "2026-01-01")
    status, out, _ = run("fleet", "show", "home-1", *folder.named)
    shown = [" ".join(line.split()) for line in out.splitlines()]
    for each in ("image", "version", "disk", "counted", "low backlog"):
        assert f"{each} not reported" in shown
    assert "normal backlog number not reported, the oldest for 3 min" in shown
    assert "discarded nothing, from 2026-01-01 11:00 to 2026-01-01 13:00" in shown
    assert (status, "contract c0ffee" in shown) == (0, True)
    document = run_json("fleet", "show", "home-1", *folder.named)
    assert {document[each] for each in ("image", "version", "disk_free_bytes", "uptime_s")} == {None}


def test_the_archive_knows_devices(
    fake_aws: FakeAws, data: DeviceData, registry: Records[Device], plane: Plane, run: Run
) -> None:
    boto3.client("iot").create_thing(thingName="by-hand")
    waiting = plane.send("operations-inbox", event("17"))
    plane.archive("tap", [beat(FIGURES, device="by-hand")], hour=f"{datetime.now(UTC):%H}")
    shown = [" ".join(line.split()) for line in run("fleet", "show", "by-hand")[1].splitlines()]
    assert "state not registered, but known to AWS IoT" in shown
    assert "connection not reported" in shown
    assert "backlog 7 pending" in shown
    (message,) = plane.received("operations-inbox")
    assert (message["MessageId"], message["Attributes"]["ApproximateReceiveCount"]) == (waiting, "1")


def test_an_environment_for_all(registry: Records[Device], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    client = boto3.client("dynamodb")
    prod = records(client, table(FLEET_TABLE, "prod"), REGISTRY)
    monkeypatch.setenv("EVENTPLANE_ENV", "prod")
    assert run("fleet", "register", "home-1")[0] == 0
    assert prod.read("home-1") is not None
    assert registry.read("home-1") is None


FULL = {"outcome": "dropped", "reason": "full", "count": 3, "ranges": []}
UP, IN_HOME = ({**FULL, "destination": each} for each in ("device.outbox", "call-service.inbox"))
NO_ROOM = {"channel": "climate.outbox", "type": "t", "reason": "no_room", "count": 2}
URGENT = {"pending": 5, "pending_urgent": 2, "oldest_urgent_s": 60.0, "oldest_low_s": 120.0}
AWAY = Line.DISCONNECTED
SINCE = "waiting in home-1: disconnected since 2026-01-01 00:00:00.000, CLIENT_ERROR"
AT = "2026-01-01 00:00:00.000"
OLDEST = "2 urgent since 2025-12-31 23:59:00.000, low since 2025-12-31 23:58:00.000"


@pytest.mark.parametrize(
    ("line", "source", "figures", "losses", "told", "why"),
    [
        (AWAY, "/x/home-1/y", URGENT, {}, [f"{SINCE}, 5 pending at {AT}, {OLDEST}"], ""),
        (AWAY, "home-1", None, {}, [f"{SINCE}, backlog not reported"], ""),
        # The tap knows which device sends in this name.
        (AWAY, "/homes/1/health", {}, {}, [f"{SINCE}, 0 pending at {AT}"], ""),
        (
            None,
            "home-1",
            {"pending": 1},
            {"deliveries": [UP, IN_HOME], "not_stored": [NO_ROOM]},
            [
                f"waiting in home-1: not reported, 1 pending at {AT}",
                "dropped by home-1: full, 3 at device.outbox, ",
                "refused by home-1: no_room, 2 at climate.outbox, ",
            ],
            "",
        ),
        (Line.CONNECTED, "home-1", {}, {"deliveries": [IN_HOME]}, [], "reports nothing that waits or ended"),
        (AWAY, "home-2", URGENT, {}, [], "see its device, or choose"),
        (AWAY, "", URGENT, {}, [], "name its source, or choose"),
    ],
)  # fmt: skip
def test_the_device_reports_what_it_holds(
    fake_aws: FakeAws, plane: Plane, run: Run, line: Line | None, source: str,
    figures: dict[str, Any] | None, losses: dict[str, Any], told: list[str], why: str,
) -> None:  # fmt: skip
    if line:
        sighting = Sighting(line, MADE_MS, 1, "s", "CLIENT_ERROR" if line is AWAY else "")
        records(fake_aws.dynamodb, table("presence"), PRESENCE).write(
            PresenceItem("home-1", sighting=sighting)
        )
    reports = [] if figures is None else [beat(figures), reported(DISCARDED, losses, 2)]
    plane.archive("tap", [tap_line(event("16").json), *reports], hour=f"{datetime.now(UTC):%H}")
    named = ["trace", *filter(None, [source]), "17"]
    status, out, _ = run(*named)
    account, *possible = out.splitlines()[1:]
    assert (status, "unknown: it never reached the tap" in account, why in account) == (3, True, True)
    for each, words in zip(possible, told, strict=True):
        assert each.startswith(f"perhaps {words}")
    followed = run(*named, "--follow", "--timeout", "0.1")[1].splitlines()
    assert followed == [account, *possible]
    (document,) = json.loads(run(*named, "--json")[1])["events"]
    assert [each["fate"] for each in document["possible"]] == [each.split()[0] for each in told]


NOBODY = "no device is called 'home-1'"


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["show", "home-1"], NOBODY),
        (["allow-replacement", "home-1"], NOBODY),
        (["groups", "home-1", "pilot"], NOBODY),
        (["quarantine", "home-1"], NOBODY),
        (["release", "home-1"], NOBODY),
        (["condemn", "home-1", "f" * 64], NOBODY),
        (["recover", "home-1"], NOBODY),
        (["decommission", "home-1"], NOBODY),
        (["decommission", "home-1", "--dry-run"], NOBODY),
        (["register", "claim-1"], "cannot be a device's name"),
        (["show", "home-1", "--env", "prod"], "name another environment with --env"),
    ],
)
def test_errors_are_one_line(registry: Records[Device], run: Run, arguments: list[str], remedy: str) -> None:
    status, _, err = run("fleet", *arguments)
    assert (status, remedy in err) == (1, True)
    assert registry.read("home-1") is None


@pytest.mark.parametrize(
    ("command", "state", "problem"),
    [
        ("allow-replacement", LifecycleState.MADE, "the claim registers it as it is"),
        ("quarantine", LifecycleState.DECOMMISSIONED, "'home-1' is decommissioned"),
        ("release", LifecycleState.DECOMMISSIONED, "'home-1' is decommissioned"),
        ("recover", LifecycleState.DECOMMISSIONED, "'home-1' is decommissioned"),
    ],
)
def test_a_device_in_another_state_is_left_alone(
    registry: Records[Device], run: Run, command: str, state: LifecycleState, problem: str
) -> None:
    registry.write(replace(made("home-1", 1), state=state))
    status, _, err = run("fleet", command, "home-1")
    assert (status, problem in err, device(registry).state) == (1, True, state)


def test_groups_gain_and_lose_devices(registry: Records[Device], run: Run, run_json: RunJson) -> None:
    registry.write(made("home-1", 1))
    assert run("fleet", "groups", "home-1", "pilot", "north")[:2] == (0, "home-1: in north pilot\n")
    assert device(registry).groups == {"north", "pilot"}
    assert run_json("fleet", "groups", "home-1", "north")["groups"] == ["north"]
    assert run("fleet", "groups", "home-1", "no group")[0] == 1
    assert device(registry).groups == {"north"}
    assert run("fleet", "groups", "home-1")[0] == 0
    assert not device(registry).groups


@pytest.mark.parametrize(("has_parts", "is_damaged"), [(True, False), (True, True), (False, False)])
@pytest.mark.lost_answers
def test_a_device_that_is_decommissioned_is_never_reported_as_away(
    registry: Records[Device], data: DeviceData, run: Run, *, has_parts: bool, is_damaged: bool
) -> None:
    """A plane `has_parts` where its contract has the presence monitor and the downlink."""
    dynamodb, iot = boto3.client("dynamodb"), boto3.client("iot")
    if has_parts:
        create_table(dynamodb, table("desired"), desired.PARTITION_KEY, desired.SORT_KEY)
        presence = records(dynamodb, table("presence"), PRESENCE)
    iot.create_thing(thingName="home-1")
    certificate = iot.create_keys_and_certificate(setAsActive=True)
    iot.attach_thing_principal(thingName="home-1", principal=certificate["certificateArn"])
    iot.create_policy(policyName="device", policyDocument="{}")
    iot.attach_policy(policyName="device", target=certificate["certificateArn"])
    data.kept |= {"shadow", "retained", "connection"}
    registry.write(made("home-1", 1))
    if is_damaged:
        unread = {"device": {"S": "home-1"}, "known": {"S": "{"}}
        dynamodb.put_item(TableName=table("presence"), Item=unread)
        wanted = {"thing": {"S": "home-1"}, "sk": {"S": "s#key"}, "version": {"S": "x"}}
        dynamodb.put_item(TableName=table("desired"), Item=wanted)
    known: list[bool] = []

    def cut(thing: str, with_session: bool) -> None:
        assert with_session
        state = presence.read(thing) if has_parts else gone(thing)
        known.append(state is not None and state.is_gone)

    data.on_cut = cut
    assert run("fleet", "decommission", "home-1")[0] == 0
    assert set(known) == {True}, "presence has to know it before the connection ends"
    assert not has_parts or dynamodb.scan(TableName=table("desired"))["Items"] == []
    assert data.kept == set()
    found = iot.describe_certificate(certificateId=certificate["certificateId"])["certificateDescription"]
    assert (found["status"], iot.list_targets_for_policy(policyName="device")["targets"]) == ("REVOKED", [])


class Things:
    """AWS IoT in memory; `cut` has the connections that were ended."""

    def __init__(self, data: DeviceData) -> None:
        self.iot = boto3.client("iot")
        self.iot.create_policy(policyName=table("quarantine"), policyDocument="{}")
        self.cut: list[str] = []

        def cut(thing: str, with_session: bool) -> None:
            assert not with_session, "what is queued for a quarantined device has to stay"
            self.cut.append(thing)

        data.on_cut = cut

    def certificate(self, thing: str, status: str = "ACTIVE") -> str:
        """A certificate that is attached to `thing`."""
        self.iot.create_thing(thingName=thing)
        made = self.iot.create_keys_and_certificate(setAsActive=True)
        self.iot.attach_thing_principal(thingName=thing, principal=made["certificateArn"])
        self.iot.update_certificate(certificateId=made["certificateId"], newStatus=status)
        return str(made["certificateId"])

    def state(self, certificate: str) -> tuple[str, bool]:
        """The status of a certificate, and whether the quarantine's policy denies it everything."""
        found = self.iot.describe_certificate(certificateId=certificate)["certificateDescription"]
        attached = self.iot.list_attached_policies(target=found["certificateArn"])["policies"]
        return str(found["status"]), bool(attached)


ACTIVE, DENIED = ("ACTIVE", False), ("INACTIVE", True)


@pytest.fixture
def things(registry: Records[Device], data: DeviceData) -> Things:
    return Things(data)


@pytest.mark.lost_answers
def test_quarantine_is_off(registry: Records[Device], things: Things, run: Run, run_json: RunJson) -> None:
    own, next_one, replaced = (things.certificate("home-1") for _ in range(3))
    revoked = things.certificate("home-1", "REVOKED")
    before = replace(
        made("home-1", 1),
        state=PROVISIONED,
        certificate=own,
        candidates=(Candidate(next_one, 1, own),),
        replaced=frozenset({replaced}),
    )
    registry.write(before)
    for _ in range(2):
        status, out, _ = run("fleet", "quarantine", "home-1", "--why", "it floods")
        assert (status, f"deactivate certificate {own}" in out) == (0, True)
        assert [things.state(each) for each in (own, next_one, replaced)] == [DENIED] * 3
    assert set(things.cut) == {"home-1"}
    shown = run_json("fleet", "show", "home-1")
    assert (shown["state"], shown["reason"]) == ("quarantined", "it floods")
    assert shown["suspended"] == sorted([own, next_one, replaced])

    for _ in range(2):
        assert run("fleet", "release", "home-1")[0] == 0
        assert [things.state(each) for each in (own, next_one)] == [ACTIVE] * 2
        assert [things.state(each)[0] for each in (replaced, revoked)] == ["INACTIVE", "REVOKED"]
    assert replace(device(registry), changed_at_ms=1, since_ms=1, revision=0) == before


def test_a_release_that_was_interrupted_is_finished_by_the_next(
    registry: Records[Device], things: Things, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = things.certificate("home-1")
    registry.write(replace(made("home-1", 1), state=PROVISIONED, certificate=own))
    assert run("fleet", "quarantine", "home-1")[0] == 0
    with monkeypatch.context() as broken:
        broken.setattr(DeviceAccess, "_set", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run("fleet", "release", "home-1")[0] == 1
    assert things.state(own)[0] == "INACTIVE"
    assert run("fleet", "release", "home-1")[0] == 0
    assert things.state(own) == ACTIVE


@pytest.mark.lost_answers
def test_a_manual_registration_is_released(registry: Records[Device], things: Things, run: Run) -> None:
    own = things.certificate("by-hand")
    assert run("fleet", "quarantine", "by-hand")[0] == 0
    assert things.state(own)[0] == "INACTIVE"
    assert run("fleet", "release", "by-hand")[0] == 0
    assert device(registry, "by-hand").state is PROVISIONED, "the claim could take its place"
    assert things.state(own) == ACTIVE


REVOKED = ("REVOKED", False)


@pytest.mark.lost_answers
@pytest.mark.parametrize("is_quarantined", [False, True])
def test_a_condemned_certificate_is_off_for_good(
    registry: Records[Device], things: Things, run: Run, run_json: RunJson, is_quarantined: bool
) -> None:
    own, bad = things.certificate("home-1"), things.certificate("home-1")
    registry.write(replace(made("home-1", 1), state=PROVISIONED, certificate=bad, replaced=frozenset({own})))
    if is_quarantined:
        assert run("fleet", "quarantine", "home-1")[0] == 0
    for _ in range(2):
        status, out, _ = run("fleet", "condemn", "home-1", bad)
        assert (status, f"revoke and detach certificate {bad}" in out) == (0, True)
        assert (things.state(bad), bad in things.iot.attached["home-1"]) == (REVOKED, False)
    assert set(things.cut) == {"home-1"}
    assert run_json("fleet", "show", "home-1")["condemned"] == [bad]
    # Also where the registry of an earlier day was restored.
    for restored in (device(registry), replace(device(registry), suspended=frozenset({bad}))):
        registry.force(restored)
        for command in ("quarantine", "release"):
            assert run("fleet", command, "home-1")[0] == 0
            assert things.state(bad)[0] == "REVOKED"
    status, _, err = run("fleet", "condemn", "home-1", "f" * 64)
    assert (status, "fleet show" in err) == (1, True)


@pytest.mark.lost_answers
@pytest.mark.parametrize("is_kept", [False, True])
def test_after_a_theft_the_device_is_back_with_one_command(
    registry: Records[Device], things: Things, run: Run, run_json: RunJson, is_kept: bool
) -> None:
    # The registry retired the device's own certificate, as the thief connected with its successor.
    own, thiefs, more = (things.certificate("home-1") for _ in range(3))
    things.iot.update_certificate(certificateId=own, newStatus="INACTIVE")
    things.iot.detach_thing_principal(thingName="home-1", principal=own)
    known = replace(made("home-1", 1), state=PROVISIONED, certificate=thiefs, former=(own,))
    registry.write(replace(known, candidates=(Candidate(more, 1, thiefs),)))
    assert run("fleet", "quarantine", "home-1", "--why", "stolen")[0] == 0
    keep, before = ["--keep", own] if is_kept else [], device(registry)
    if is_kept:
        things.iot.update_certificate(certificateId=own, newStatus="REVOKED")
        assert run("fleet", "recover", "home-1", *keep)[0] == 1
        assert device(registry) == before
        things.iot.update_certificate(certificateId=own, newStatus="INACTIVE")
    for _ in range(2):
        assert run("fleet", "recover", "home-1", *keep)[0] == 0
        assert [things.state(each) for each in (thiefs, more)] == [REVOKED] * 2
        assert things.iot.attached["home-1"] == ({own} if is_kept else set())
    shown = run_json("fleet", "show", "home-1")
    assert (shown["state"], shown["certificate"]) == ("provisioned", own if is_kept else None)
    assert (shown["replaceable_until"] is None) is is_kept
    assert things.state(own)[0] == ("ACTIVE" if is_kept else "REVOKED")
    assert things.cut[-1] == "home-1"
    assert run("fleet", "recover", "home-1", "--keep", thiefs)[0] == 1
