"""What a program announces: in the table that routers read, and taken back with the program."""

from os import urandom
from typing import Any

import pytest

from contract import load_contract
from eventplane.interest.announcement import with_interest
from eventplane.interest.table import PARTITION, SORT, InterestTable
from eventplane_aws.tables import DynamoDbTables
from eventplane_client import ClientSettings, connect
from eventplane_client.client import checked_announcement
from eventplane_client.dynamodb_routes import DynamoDbInterest
from eventplane_client.errors import ClosedError, InterestError, UnavailableError
from tests.dynamodb import create_table
from tests.eventually import eventually
from tests.fakes.aws import FakeAws

ALARMS = {"prefix": {"type": "org.eventplane.alarm."}}
DOORS = {"exact": {"type": "org.eventplane.activity.door.v1"}}


@pytest.fixture
def dynamodb(fake_aws: FakeAws) -> Any:
    client = fake_aws.dynamodb
    create_table(client, "interest", PARTITION, SORT)
    return client


def items(dynamodb: Any) -> list[Any]:
    return list(InterestTable(DynamoDbTables(dynamodb, urandom), "interest").all())


@pytest.mark.lost_answers
def test_interest_goes_with_its_program(dynamodb: Any) -> None:
    announcement = checked_announcement("family-app", [DOORS])
    old, new = (DynamoDbInterest(dynamodb, "interest", "family-app", clock=lambda: 1_000) for _ in range(2))
    old.announce(announcement)
    new.announce(checked_announcement("family-app", [ALARMS]))
    assert {each.until_s for each in items(dynamodb)} == {1_300}
    derived, refused = with_interest(load_contract(), [each.announcement for each in items(dynamodb)])
    assert refused == {}
    routes = [each for each in derived.routes if each.interest is not None]
    assert {each.destination for each in routes} == {"family-app.inbox"}
    for route in routes:
        assert all(
            route.interest.matches({"type": f"org.eventplane.{t}.v1"}) for t in ("activity.door", "alarm.x")
        )
    new.close()
    assert [each.announcement for each in items(dynamodb)] == [announcement]
    old.withdraw()
    assert items(dynamodb) == []


@pytest.mark.source("C8")
def test_it_is_renewed_while_the_program_lives(dynamodb: Any) -> None:
    seconds = iter(range(1_000, 100_000_000, 1_000))
    own = DynamoDbInterest(dynamodb, "interest", "family-app", lease_s=0.03, clock=lambda: next(seconds))
    own.announce(checked_announcement("family-app", [DOORS]))
    assert eventually(lambda: items(dynamodb)[0].until_s > 2_000)
    assert items(dynamodb)[0].announced_ms == 1_000_000  # a renewal announces nothing
    own.close()
    with pytest.raises(ClosedError):  # as in a thread that the other one's close overtook
        own.announce(checked_announcement("family-app", [DOORS]))
    assert items(dynamodb) == []


def test_a_silent_table_keeps_no_program(dynamodb: Any) -> None:
    own = DynamoDbInterest(dynamodb, "elsewhere", "family-app")
    with pytest.raises(UnavailableError):
        own.announce(checked_announcement("family-app", [DOORS]))
    own.withdraw()  # nothing was announced
    own.close()


def test_what_cannot_be_announced_is_named() -> None:
    client = connect(ClientSettings("memory:wrong", "reader"))
    with pytest.raises(InterestError) as wrong:
        client.announce([{"sql": "type = ("}])
    assert [each.path for each in wrong.value.problems] == ["filters[0].sql"]
    client.close()
    with pytest.raises(ClosedError):
        client.announce([DOORS])
