"""`eventplane restore`: what a table lost comes back, and nothing that came since goes."""

from dataclasses import replace
from datetime import UTC, datetime
from os import urandom

import pytest

from eventplane.device_record import FLEET_TABLE, REGISTRY, Device, LifecycleState
from eventplane.interest.table import INTEREST_TABLE
from eventplane.records import Item, Records
from eventplane_aws.tables import DynamoDbTables
from operations import restore_command
from operations.cloud import Cloud
from tests.dynamodb import create_table
from tests.fakes.aws import FakeAws
from tests.unit.operations.support import ENVIRONMENT, Run

AT = "2026-03-01T08:30:00Z"
FLEET = f"eventplane-{ENVIRONMENT}-{FLEET_TABLE}"
COPY = f"{FLEET}-at-20260301T083000Z"
PROVISIONED = LifecycleState.PROVISIONED


def device(thing: str, **others: object) -> Device:
    return replace(Device(thing=thing, state=PROVISIONED, changed_at_ms=1, since_ms=1), **others)


@pytest.fixture
def fleet(fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> Records[Device]:
    """The registry, of which DynamoDB keeps former states."""
    monkeypatch.setattr(restore_command, "enter", lambda _: Cloud(fake_aws))
    for table, key in ((FLEET, REGISTRY.key), (f"eventplane-{ENVIRONMENT}-{INTEREST_TABLE}", ("p", "s"))):
        create_table(fake_aws.dynamodb, table, *key)
    return Records(DynamoDbTables(fake_aws.dynamodb, urandom), FLEET, REGISTRY)


def kept_from(fake_aws: FakeAws, table: str, copy: str) -> None:
    """DynamoDB has made the copy, for a run whose answer was lost or that was ended."""
    fake_aws.dynamodb.restore_table_to_point_in_time(
        SourceTableName=table, TargetTableName=copy, RestoreDateTime=datetime(2026, 3, 1, 8, 30, tzinfo=UTC)
    )


@pytest.mark.lost_answers
@pytest.mark.parametrize(("words", "done"), [(("--dry-run",), "to be written"), ((), "written")])
def test_devices_that_are_gone_or_unreadable_come_back_and_those_that_came_since_stay(
    fleet: Records[Device], fake_aws: FakeAws, run: Run, words: tuple[str, ...], done: str
) -> None:
    then = [device("home-1", certificate="c1", condemned=frozenset({"c0"})), device("home-2")]
    assert all(map(fleet.write, then))
    kept_from(fake_aws, FLEET, COPY)
    fake_aws.dynamodb.delete_item(TableName=FLEET, Key=REGISTRY.key_of("home-1"))
    fake_aws.dynamodb.put_item(TableName=FLEET, Item={"thing": {"S": "home-2"}, "state": {"S": "?"}})
    fleet.write(device("home-3"))
    there = fake_aws.dynamodb.items(FLEET)
    assert run("restore", "fleet", "--at", AT, *words)[:2] == (0, f"fleet: 2 {done}\n")
    assert COPY not in tables(fake_aws)
    if words:
        assert fake_aws.dynamodb.items(FLEET) == there
        return
    found = [fleet.read(f"home-{number}") for number in (1, 2, 3)]
    assert [each and replace(each, revision=0) for each in found] == [*then, device("home-3")]


@pytest.mark.lost_answers
def test_a_copy_that_is_still_being_deleted_is_made_anew(
    fleet: Records[Device], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fleet.write(device("home-1"))
    seen, status = iter(["DELETING"]), restore_command._status  # then it is gone
    monkeypatch.setattr(restore_command, "_status", lambda *of: next(seen, None) or status(*of))
    monkeypatch.setattr(restore_command.system, "sleep", lambda _: None)
    assert run("restore", "fleet", "--at", AT)[:2] == (0, "fleet: 1 as it is\n")


def tables(fake_aws: FakeAws) -> list[str]:
    return list(fake_aws.dynamodb.list_tables()["TableNames"])


def test_quarantines_and_keys_of_since_then_stay(fleet: Records[Device], fake_aws: FakeAws, run: Run) -> None:
    before = fleet.write(device("home-1", certificate="c1", groups=frozenset({"pilot"})))
    assert before
    kept_from(fake_aws, FLEET, COPY)
    since = replace(
        before,
        state=LifecycleState.QUARANTINED,
        certificate="c2",
        condemned=frozenset({"c1"}),
        groups=frozenset(),
    )
    assert fleet.write(since)
    assert run("restore", "fleet", "--at", AT, "--over")[:2] == (0, "fleet: 1 written\n")
    assert fleet.read("home-1") == replace(since, groups=frozenset({"pilot"}), revision=since.revision + 2)
    assert tables(fake_aws) == [FLEET, f"eventplane-{ENVIRONMENT}-{INTEREST_TABLE}"]


@pytest.mark.parametrize(("words", "kept"), [((), "new"), (("--over",), "old")])
def test_what_has_changed_since_is_written_over_on_demand_only(
    fleet: Records[Device], fake_aws: FakeAws, run: Run, words: tuple[str, ...], kept: str
) -> None:
    table = f"eventplane-{ENVIRONMENT}-{INTEREST_TABLE}"

    def item(text: str) -> Item:
        return {"p": {"S": "a"}, "s": {"S": "b"}, "text": {"S": text}}

    fake_aws.dynamodb.put_item(TableName=table, Item=item("old"))
    kept_from(fake_aws, table, f"{table}-at-20260301T083000Z")
    fake_aws.dynamodb.put_item(TableName=table, Item=item("new"))
    assert run("restore", "interest", "--at", AT, *words)[0] == 0
    (found,) = fake_aws.dynamodb.items(table)
    assert found["text"] == {"S": kept}


def test_a_moment_that_is_not_kept_is_named_with_those_that_are(
    fleet: Records[Device], fake_aws: FakeAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = fake_aws.dynamodb.refusal("InvalidRestoreTimeException", "no", "RestoreTableToPointInTime")

    def refuse(**_: object) -> None:
        raise refusal

    monkeypatch.setattr(fake_aws.dynamodb, "restore_table_to_point_in_time", refuse, raising=False)
    status, _, err = run("restore", "fleet", "--at", AT)
    assert status == 1
    assert (
        "cannot be restored as it was at 2026-03-01T08:30:00.000Z; name a moment of the last 35 days" in err
    )


@pytest.mark.parametrize("text", ["yesterday", "2026-03-01", "2026-03-01T08:30:00"])
def test_a_moment_is_a_timestamp_with_a_zone(run: Run, text: str) -> None:
    status, _, err = run("restore", "fleet", "--at", text)
    assert (status, "is no time; write" in err) == (2, True)
