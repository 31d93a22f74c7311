"""Concurrent writers of a subscription: nothing is lost or counted twice; the conditions of HTTP."""

from collections.abc import Callable
from os import urandom
from typing import Any

import pytest

from eventplane.contract.subscription import MAX_OWN, Subscription, new_subscription
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.sinks import ANYWHERE
from eventplane_aws.tables import DynamoDbTables
from lambdas.common.http_api import if_match_names, if_none_match_names, tag_of
from parts.subscriptions_api.errors import LimitError, NotFoundError, PreconditionError, TakenError
from parts.subscriptions_api.service import ATTEMPTS, Conditions, SubscriptionService
from tests.fakes.faults import HookedClient
from tests.parts.subscriptions_api.conftest import INBOXES
from tests.plane import shipped_contract
from tests.unit.lambdas.support import SUBSCRIPTIONS, Cloud

ALWAYS = Conditions()
TAG = tag_of(b"content")


def wanted(type: str) -> dict[str, Any]:
    return {"types": [type], "protocol": "SQS", "sink": INBOXES["carers"]}


@pytest.fixture
def service(cloud: Cloud) -> Callable[..., SubscriptionService]:
    """The service over a table in which one of `others` acts just before each of our writes."""

    def make(*others: Callable[[], object]) -> SubscriptionService:
        left = iter(others)

        def act() -> None:
            next(left, int)()

        dynamodb = HookedClient(HookedClient(cloud.dynamodb, "put_item", act), "delete_item", act)
        return SubscriptionService(
            table=SubscriptionTable(DynamoDbTables(dynamodb, urandom), SUBSCRIPTIONS),
            inboxes=INBOXES,
            contract=shipped_contract,
            consent=lambda _url, rate: rate,
            reach=ANYWHERE,
            clock=cloud.clock,
            random_bytes=urandom,
        )

    return make


def test_the_later_of_two_changes_wins(service: Any) -> None:
    other = service()
    other.update("carers", "news", wanted("first"), ALWAYS)
    ours, is_new = service(lambda: other.update("carers", "news", wanted("theirs"), ALWAYS)).update(
        "carers", "news", wanted("ours"), ALWAYS
    )
    assert not is_new
    assert other.retrieve("carers", "news") == ours


def test_the_second_of_two_conditional_changes_is_refused(service: Any) -> None:
    other = service()
    read, _ = other.update("carers", "news", wanted("first"), ALWAYS)
    match = Conditions(match=read.tag)
    # Also of a change between its reading and its writing.
    late = service(lambda: other.update("carers", "news", wanted("theirs"), match))
    for each in (late, service()):
        with pytest.raises(PreconditionError):
            each.update("carers", "news", wanted("ours"), match)
        with pytest.raises(PreconditionError):
            each.delete("carers", "news", match)
    theirs = other.retrieve("carers", "news")
    assert theirs.document["types"] == ["theirs"]
    other.delete("carers", "news", Conditions(match=f'"x", {theirs.tag}'))


@pytest.mark.lost_answers
def test_one_of_two_writers_creates_a_name(service: Any) -> None:
    other = service()
    late = service(lambda: other.update("carers", "news", wanted("theirs"), Conditions(none_match="*")))
    with pytest.raises(PreconditionError):
        late.update("carers", "news", wanted("ours"), Conditions(none_match="*"))
    with pytest.raises(PreconditionError):
        other.update("carers", "gone", wanted("ours"), Conditions(match="*"))
    assert [each.id for each in other.query("carers")] == ["news"]


@pytest.mark.lost_answers
def test_a_deleted_subscription_is_made_anew(service: Any) -> None:
    other = service()
    other.update("carers", "news", wanted("first"), ALWAYS)
    _, is_new = service(lambda: other.delete("carers", "news", ALWAYS)).update(
        "carers", "news", wanted("ours"), ALWAYS
    )
    assert is_new
    service(lambda: other.delete("carers", "news", ALWAYS)).delete("carers", "news", ALWAYS)
    with pytest.raises(NotFoundError):
        other.retrieve("carers", "news")


def test_a_writer_that_always_loses_gets_a_conflict(service: Any) -> None:
    other = service()
    other.update("carers", "news", wanted("first"), ALWAYS)
    busy = [
        lambda at=at: other.update("carers", "news", wanted(f"theirs{at}"), ALWAYS) for at in range(ATTEMPTS)
    ]
    with pytest.raises(TakenError):
        service(*busy).update("carers", "news", wanted("ours"), ALWAYS)


def test_two_concurrent_creations_do_not_exceed_the_quota(service: Any, cloud: Cloud) -> None:
    own = cloud.subscriptions
    for number in range(MAX_OWN - 1):
        own.write(new_subscription("carers", f"n{number}", {"exact": {"type": "t"}}, "2026-01-01T00:00:00Z"))
    other = service()
    late = service(lambda: other.create("carers", wanted("theirs")))
    with pytest.raises(LimitError):
        late.create("carers", wanted("ours"))
    kept: list[Subscription] = own.of("carers")
    assert len(kept) == MAX_OWN
    assert any("theirs" in each.document for each in kept)


@pytest.mark.parametrize(
    ("condition", "strongly", "weakly"),
    [
        (tag_of(b"other"), False, False),
        (TAG, True, True),
        (f'"other" , {TAG}', True, True),
        (f"W/{TAG}", False, True),
        (f'W/"other",W/{TAG}', False, True),
        ("*", True, True),
        ('"other"', False, False),
        (TAG.strip('"'), False, False),
        ("", False, False),
    ],
)
def test_if_match_compares_strongly(condition: str, strongly: bool, weakly: bool) -> None:
    assert (if_match_names(condition, TAG), if_none_match_names(condition, TAG)) == (strongly, weakly)
    assert (if_match_names(condition, None), if_none_match_names(condition, None)) == (False, False)
