"""The operator's commands for the fleet; disposal is in tests/integration/test_fleet_provisioning.py."""

from __future__ import annotations

import json
from dataclasses import replace

import boto3
import pytest

from eventplane.__main__ import main as command_line
from eventplane.downlink import table as desired
from eventplane.fleet import FLEET_KEY, FleetTable, LifecycleState, made
from operations.fleet.access import DeviceAccess
from operations.fleet.disposal import Disposal
from tests.dynamodb import create_table


def main(arguments: list[str]) -> int:
    return command_line(["fleet", *arguments])


TABLE = "eventplane-dev-fleet"


@pytest.fixture
def registry(aws: None) -> FleetTable:
    client = boto3.client("dynamodb")
    create_table(client, TABLE, FLEET_KEY)
    return FleetTable(client, TABLE)


def test_devices_are_registered_once(registry: FleetTable, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["register", "home-1", "home-2"]) == 0
    assert main(["register", "home-2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "home-1: registered",
        "home-2: registered",
        "home-2: was registered before",
    ]
    device = registry.read("home-2")
    assert device is not None
    assert (device.state, device.revision) == (LifecycleState.MADE, 1)


def test_devices_are_listed(registry: FleetTable, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3, 0, -1):
        groups = frozenset({"north", "pilot"} if number == 2 else ())
        registry.write(replace(made(f"home-{number}", 1_767_225_600_000), groups=groups))
    provisioned = LifecycleState.PROVISIONED
    registry.write(replace(made("home-4", 1_767_225_600_000), state=provisioned))
    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines()[1:3] == [
        "home-1  made         2026-01-01 00:00:00.000  -",
        "home-2  made         2026-01-01 00:00:00.000  north pilot",
    ]
    assert main(["list", "--state", "provisioned", "--json"]) == 0
    assert [each["thing"] for each in json.loads(capsys.readouterr().out)] == ["home-4"]
    assert main(["list", "--group", "north", "--json"]) == 0
    assert [each["thing"] for each in json.loads(capsys.readouterr().out)] == ["home-2"]
    assert main(["list", "--most", "1"]) == 0
    listed = capsys.readouterr()
    assert ("home-1" in listed.out, "home-2" in listed.out) == (True, False)
    assert "3 more devices; show more with --most" in listed.err


@pytest.mark.parametrize("options", [["--most", "0"], ["--most", "x"], ["--state", "gone"]])
def test_a_list_of_nothing_is_refused(registry: FleetTable, options: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["list", *options])
    assert ended.value.code == 2


def test_what_changes_devices_prints_documents(
    registry: FleetTable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["register", "home-1", "home-1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"thing": "home-1", "is_new": True},
        {"thing": "home-1", "is_new": False},
    ]
    assert main(["groups", "home-1", "north", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"] == ["north"]


def test_a_device_is_shown(registry: FleetTable, capsys: pytest.CaptureFixture[str]) -> None:
    registry.write(made("home-1", 1_767_225_600_000))
    assert main(["show", "home-1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "thing          home-1",
        "state          made",
        "changed        2026-01-01 00:00:00.000",
        "registrations  0",
    ]


def test_a_device_is_shown_as_a_document(registry: FleetTable, capsys: pytest.CaptureFixture[str]) -> None:
    registry.write(replace(made("home-1", 1), groups=frozenset({"north", "pilot"})))
    assert main(["show", "home-1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["state"], document["groups"], document["reason"]) == ("made", ["north", "pilot"], None)


def test_the_environment_may_be_chosen_for_all_commands(
    registry: FleetTable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = "eventplane-prod-fleet"
    client = boto3.client("dynamodb")
    create_table(client, other, FLEET_KEY)
    monkeypatch.setenv("EVENTPLANE_ENV", "prod")
    assert main(["register", "home-1"]) == 0
    assert FleetTable(client, other).read("home-1") is not None
    assert registry.read("home-1") is None


def test_what_a_reason_contains_cannot_move_the_cursor(
    registry: FleetTable, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.write(replace(made("home-1", 1), reason="gone\x1b[2J"))
    assert main(["show", "home-1"]) == 0
    assert "reason         gone\\x1b[2J" in capsys.readouterr().out


def test_without_credentials_the_remedy_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("boto3.Session.get_credentials", lambda _: None)
    assert main(["show", "home-1"]) == 1
    assert "log in as for the AWS command line" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["show", "home-1"], "no device is called 'home-1'"),
        (["allow-replacement", "home-1"], "no device is called 'home-1'"),
        (["quarantine", "home-1"], "no device is called 'home-1'"),
        (["release", "home-1"], "no device is called 'home-1'"),
        (["decommission", "home-1"], "no device is called 'home-1'"),
        (["decommission", "home-1", "--dry-run"], "no device is called 'home-1'"),
        (["register", "claim-1"], "cannot be a device's name"),
        (["show", "home-1", "--env", "prod"], "name another environment with --env"),
    ],
)
def test_what_cannot_be_done_is_said_without_a_traceback(
    registry: FleetTable, arguments: list[str], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert remedy in capsys.readouterr().err
    assert registry.read("home-1") is None


def test_a_replacement_is_for_devices_in_service(
    registry: FleetTable, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.write(made("home-1", 1))
    assert main(["allow-replacement", "home-1"]) == 1
    assert "the claim registers it as it is" in capsys.readouterr().err


def test_a_device_is_put_into_groups_and_out_of_them(
    registry: FleetTable, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.write(made("home-1", 1))
    assert main(["groups", "home-1", "pilot", "north"]) == 0
    assert capsys.readouterr().out == "home-1: in north pilot\n"
    device = registry.read("home-1")
    assert device is not None
    assert device.groups == {"north", "pilot"}
    assert main(["show", "home-1"]) == 0
    assert "groups         north pilot" in capsys.readouterr().out
    assert main(["groups", "home-1"]) == 0
    assert main(["groups", "home-1", "no group"]) == 1
    assert main(["groups", "home-2", "pilot"]) == 1
    device = registry.read("home-1")
    assert device is not None
    assert not device.groups


def test_a_device_that_is_decommissioned_is_never_reported_as_away(
    registry: FleetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    dynamodb, iot = boto3.client("dynamodb"), boto3.client("iot")
    create_table(dynamodb, "eventplane-dev-desired", desired.PARTITION_KEY, desired.SORT_KEY)
    create_table(dynamodb, "eventplane-dev-presence", "device")
    iot.create_thing(thingName="home-1")
    registry.write(made("home-1", 1))
    watched: list[str] = []

    def cut(_: DeviceAccess, thing: str, *, with_session: bool) -> None:
        assert with_session
        key = {"device": {"S": thing}}
        item = dynamodb.get_item(TableName="eventplane-dev-presence", Key=key)["Item"]
        watched.append(item["known"]["S"])

    monkeypatch.setattr(DeviceAccess, "cut", cut)
    monkeypatch.setattr(Disposal, "_retained", lambda *_: [])  # moto plays no retained messages
    assert main(["decommission", "home-1"]) == 0
    assert watched == ['{"is_gone": true}'], "presence has to know it before the connection ends"


class Things:
    """AWS IoT as moto plays it; `cut` has the connections that were ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.iot = boto3.client("iot")
        self.iot.create_policy(policyName="eventplane-dev-quarantine", policyDocument="{}")
        self.cut: list[str] = []

        def cut(_: DeviceAccess, thing: str, *, with_session: bool) -> None:
            assert not with_session, "what is queued for a quarantined device has to stay"
            self.cut.append(thing)

        # moto plays no connections.
        monkeypatch.setattr(DeviceAccess, "cut", cut)

    def certificate(self, thing: str, status: str = "ACTIVE") -> str:
        """A certificate that is attached to `thing`."""
        self.iot.create_thing(thingName=thing)
        made = self.iot.create_keys_and_certificate(setAsActive=True)
        self.iot.attach_thing_principal(thingName=thing, principal=made["certificateArn"])
        self.iot.update_certificate(certificateId=made["certificateId"], newStatus=status)
        return str(made["certificateId"])

    def is_denied(self, certificate: str) -> bool:
        arn = self.iot.describe_certificate(certificateId=certificate)["certificateDescription"]
        return bool(self.iot.list_attached_policies(target=arn["certificateArn"])["policies"])

    def status(self, certificate: str) -> str:
        found = self.iot.describe_certificate(certificateId=certificate)["certificateDescription"]
        return str(found["status"])


@pytest.fixture
def things(registry: FleetTable, monkeypatch: pytest.MonkeyPatch) -> Things:
    return Things(monkeypatch)


def test_a_quarantined_device_is_off_until_its_release(
    registry: FleetTable, things: Things, capsys: pytest.CaptureFixture[str]
) -> None:
    own, next_one, replaced = (things.certificate("home-1") for _ in range(3))
    revoked = things.certificate("home-1", "REVOKED")
    before = replace(
        made("home-1", 1),
        state=LifecycleState.PROVISIONED,
        certificate=own,
        pending=next_one,
        replaced=frozenset({replaced}),
    )
    registry.write(before)
    for _ in range(2):
        assert main(["quarantine", "home-1", "--why", "it floods"]) == 0
        assert [things.status(each) for each in (own, next_one, replaced)] == ["INACTIVE"] * 3
        assert all(things.is_denied(each) for each in (own, next_one, replaced))
    assert things.cut == ["home-1", "home-1"]
    assert main(["show", "home-1", "--json"]) == 0
    output = capsys.readouterr().out
    assert f"deactivate certificate {own}" in output
    shown = json.loads(output[output.index("{") :])
    assert (shown["state"], shown["reason"]) == ("quarantined", "it floods")
    assert shown["suspended"] == sorted([own, next_one, replaced])

    for _ in range(2):
        assert main(["release", "home-1"]) == 0
        assert [things.status(each) for each in (own, next_one, replaced, revoked)] == [
            "ACTIVE",
            "ACTIVE",
            "INACTIVE",
            "REVOKED",
        ]
    assert not things.is_denied(own)
    assert not things.is_denied(next_one)
    after = registry.read("home-1")
    assert after is not None
    assert replace(after, changed_at_ms=1, since_ms=1, revision=0) == before


def test_a_release_that_was_interrupted_is_finished_by_the_next(
    registry: FleetTable, things: Things, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = things.certificate("home-1")
    registry.write(replace(made("home-1", 1), state=LifecycleState.PROVISIONED, certificate=own))
    assert main(["quarantine", "home-1"]) == 0
    with monkeypatch.context() as broken:
        broken.setattr(DeviceAccess, "_set", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main(["release", "home-1"]) == 1
    assert things.status(own) == "INACTIVE"
    assert main(["release", "home-1"]) == 0
    assert things.status(own) == "ACTIVE"


def test_a_device_that_was_registered_by_hand_is_in_service_after_its_release(
    registry: FleetTable, things: Things
) -> None:
    own = things.certificate("by-hand")
    assert main(["quarantine", "by-hand"]) == 0
    assert things.status(own) == "INACTIVE"
    assert main(["release", "by-hand"]) == 0
    device = registry.read("by-hand")
    assert device is not None
    assert device.state is LifecycleState.PROVISIONED, "the claim could take its place"
    assert things.status(own) == "ACTIVE"


@pytest.mark.parametrize("command", ["quarantine", "release"])
def test_a_decommissioned_device_has_nothing_to_quarantine(
    registry: FleetTable, things: Things, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.write(replace(made("home-1", 1), state=LifecycleState.DECOMMISSIONED))
    assert main([command, "home-1"]) == 1
    assert "'home-1' is decommissioned" in capsys.readouterr().err
