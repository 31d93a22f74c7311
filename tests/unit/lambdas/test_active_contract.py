"""Which contract a function uses, by what the tables contain and whether they answer."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from types import FrameType
from typing import Any

import pytest

from eventplane.contract import Contract, ContractError, compile_contract
from eventplane.contract.publication import CONTRACT, HEAD, contract_id, head_id, published
from eventplane.contract.subscription import IN_FORCE_S
from eventplane.contract.subscription_table import SUBSCRIPTION
from eventplane.interest.announcement import new_announcement
from eventplane.interest.table import ANNOUNCEMENT, InterestTable, LeasedAnnouncement, announcement_item
from eventplane.records import Records
from lambdas.common.aws import WORST_CALL_MS
from lambdas.router.active_contract import RETRY_MS, ActiveContract, Unseen
from lambdas.router.engine import RoutingEngine
from lambdas.router.service import LIMITS
from tests.fakes.faults import FailingClient
from tests.small_contract import with_changes
from tests.unit.lambdas.support import (
    INTEREST,
    INTERVAL_MS,
    SUBSCRIPTIONS,
    TABLE,
    Cloud,
    seen,
    unseen,
    with_route,
)

NEWS = "org.eventplane.alarm.news.v1"
NEWS_ROUTE = "family-app-subscribes-news"
InForce = ActiveContract[RoutingEngine]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The metrics that were counted."""
    counted: list[str] = []
    monkeypatch.setattr("lambdas.router.active_contract.count", counted.append)
    return counted


def later(cloud: Cloud, in_force: InForce) -> Contract:
    """The contract in force after the next look at the tables."""
    cloud.clock.now_ms += INTERVAL_MS
    return seen(in_force)


def routes(contract: Contract) -> set[str]:
    return {each.name for each in contract.routes}


def failing(cloud: Cloud, *tables: str) -> FailingClient:
    """DynamoDB that refuses what concerns `tables`; none yet for no table."""
    return FailingClient(cloud.dynamodb, targets=tables)


class TestPublished:
    @pytest.mark.source("P13", "P-W1")
    def test_it_is_used_within_the_interval_and_withdrawn_again(self, cloud: Cloud) -> None:
        in_force = cloud.in_force()
        assert seen(in_force) is cloud.contract
        new = with_route(cloud.contract, "new")
        cloud.publish(new)
        cloud.clock.now_ms += INTERVAL_MS - 1
        assert seen(in_force) == cloud.contract
        cloud.clock.now_ms += 1
        assert seen(in_force) == new
        cloud.withdraw()
        assert later(cloud, in_force) == cloud.contract

    def test_a_contract_of_another_deployment_is_ignored(self, cloud: Cloud) -> None:
        ours, cloud.contract = cloud.contract, with_route(cloud.contract, "other-base")
        cloud.publish(with_route(ours, "new"))
        cloud.contract = ours
        assert seen(cloud.in_force()) == ours

    @pytest.mark.parametrize("is_first", [True, False])
    @pytest.mark.parametrize("kind", ["missing", "damaged", "renamed", "unreachable", "without source"])
    def test_a_broken_contract_replaces_no_good_one(self, cloud: Cloud, kind: str, is_first: bool) -> None:
        in_force, good = cloud.in_force(), cloud.contract
        if not is_first:
            good = with_route(cloud.contract, "good")
            cloud.publish(good)
        publish_broken(cloud, kind)
        # The same holds in a new process, and the next good contract is used.
        fresh = cloud.in_force()
        assert later(cloud, in_force) == seen(fresh) == good
        better = with_route(cloud.contract, "better")
        cloud.publish(better)
        assert later(cloud, fresh) == seen(in_force) == better

    def test_a_broken_contract_is_read_once(self, cloud: Cloud, counted: list[str]) -> None:
        publish_broken(cloud, "unreachable")
        client = failing(cloud)
        in_force = cloud.in_force(client)
        for _ in range(3):
            later(cloud, in_force)
        # The head at each look, the contract once.
        assert (counted, client.asked.count(("get_item", TABLE))) == (["ContractRefused"] * 3, 4)

    @pytest.mark.parametrize("spoil", [True, False])
    def test_a_contract_published_again_is_in_force_at_the_next_look(self, cloud: Cloud, spoil: bool) -> None:
        new = with_route(cloud.contract, "new")
        if spoil:
            put(cloud, TABLE, CONTRACT.key_of(contract_id(new.version)), compiled={"B": b"not zlib"})
        cloud.name(new.version)
        in_force = cloud.in_force()
        assert later(cloud, in_force) == cloud.contract
        cloud.publish(new)
        assert later(cloud, in_force) == new

    def test_a_malformed_head_changes_nothing_and_a_new_process_waits(self, cloud: Cloud) -> None:
        in_force = cloud.in_force()
        assert seen(in_force) == cloud.contract
        put(cloud, TABLE, HEAD.key_of(head_id(cloud.contract.version)))
        assert later(cloud, in_force) == cloud.contract
        # It may have named any contract.
        assert unseen(cloud.in_force()) == cloud.contract


def put(cloud: Cloud, table: str, key: Any, **attributes: Any) -> None:
    cloud.dynamodb.put_item(TableName=table, Item={**key, **attributes})


def publish_broken(cloud: Cloud, kind: str) -> None:
    """Publish a contract that no router can use."""
    match kind:
        case "missing":
            cloud.name("0" * 16)
        case "damaged":
            put(cloud, TABLE, CONTRACT.key_of(contract_id("1" * 16)), compiled={"B": b"not zlib"})
            cloud.name("1" * 16)
        case "renamed":
            item = published(with_route(cloud.contract, "renamed"))
            cloud.contracts.contracts.force(replace(item, version="2" * 16))
            cloud.name("2" * 16)
        case "unreachable":
            cloud.publish(with_route(with_nobody(cloud.contract), "lost", "nobody.inbox"))
        case _:
            text = cloud.contract.canonical.decode().replace('"device.', '"gadget.')
            text = text.replace('"device":{"description"', '"gadget":{"description"', 1)
            cloud.publish(compile_contract(json.loads(text), "x"))


def with_nobody(contract: Contract) -> Contract:
    """With a participant that has no queue."""
    nobody = {"kind": "cloud_service", "description": "Has no queue."}
    return with_changes(contract, {"participants/nobody": nobody})


class TestTablesThatFail:
    def test_what_a_table_contained_last_stays_in_force(self, cloud: Cloud, counted: list[str]) -> None:
        dynamodb = failing(cloud)
        in_force = cloud.in_force(dynamodb)
        cloud.publish(with_route(cloud.contract, "good"))
        cloud.subscribe("news", NEWS)
        assert {"good", NEWS_ROUTE} <= routes(seen(in_force))
        dynamodb.targets = {TABLE}
        assert {"good", NEWS_ROUTE} <= routes(later(cloud, in_force))
        cloud.clock.now_ms += RETRY_MS
        seen(in_force)
        # A failing table is not read again before the interval is over.
        assert (counted, dynamodb.asked.count(("get_item", TABLE))) == (["ContractUnchecked"], 3)
        dynamodb.targets = {SUBSCRIPTIONS}
        cloud.publish(with_route(cloud.contract, "new"))
        assert {"new", NEWS_ROUTE} <= routes(later(cloud, in_force))

    @pytest.mark.parametrize("table", [TABLE, SUBSCRIPTIONS])
    def test_a_new_process_has_not_seen_the_contract_in_force(self, cloud: Cloud, table: str) -> None:
        new = with_route(cloud.contract, "new")
        cloud.publish(new)
        cloud.subscribe("news", NEWS)
        dynamodb = failing(cloud, table)
        in_force = cloud.in_force(dynamodb)
        # A known publication is preferred to the bundled contract.
        assert unseen(in_force) == (cloud.contract if table == TABLE else new)
        dynamodb.targets.clear()
        cloud.clock.now_ms += RETRY_MS
        assert {"new", NEWS_ROUTE} <= routes(seen(in_force))

    def test_an_unseen_contract_is_looked_for_every_second(self, cloud: Cloud) -> None:
        dynamodb = failing(cloud, TABLE)
        in_force = cloud.in_force(dynamodb)
        for _ in range(5):
            unseen(in_force)
        cloud.clock.now_ms += RETRY_MS - 1
        unseen(in_force)
        # The first failing table ends the look: each takes seconds when it does not answer.
        assert dynamodb.asked == [("get_item", TABLE)]
        cloud.clock.now_ms += 1
        unseen(in_force)
        assert len(dynamodb.asked) == 2

    @pytest.mark.parametrize("was_seen", [True, False])
    def test_tables_that_hang_leave_the_time_to_send_alarms(self, cloud: Cloud, was_seen: bool) -> None:
        def hang(_: object) -> bool:
            cloud.clock.now_ms += WORST_CALL_MS
            return True

        dynamodb = FailingClient(cloud.dynamodb, targets=(), refused=hang)
        in_force = cloud.in_force(dynamodb)
        if was_seen:
            seen(in_force)
        dynamodb.targets = {TABLE, SUBSCRIPTIONS, INTEREST}
        cloud.clock.now_ms += INTERVAL_MS
        waited: list[int] = []
        for _ in range(20):  # a message a second, but for what the function takes
            began_ms = cloud.clock()
            in_force.engine()
            waited.append(cloud.clock() - began_ms)
            cloud.clock.advance(1)
        assert max(waited) == WORST_CALL_MS < 30_000 - LIMITS.planning_ms
        assert sum(waited) <= 2 * WORST_CALL_MS
        dynamodb.targets.clear()
        cloud.clock.now_ms += 2 * WORST_CALL_MS
        seen(in_force)

    def test_a_clock_set_back_does_not_postpone_the_next_look(self, cloud: Cloud) -> None:
        dynamodb = failing(cloud, TABLE)
        in_force = cloud.in_force(dynamodb)
        unseen(in_force)
        dynamodb.targets.clear()
        cloud.clock.now_ms -= 600_000
        seen(in_force)

    def test_unreadable_interest_does_not_delay_the_contract(self, cloud: Cloud) -> None:
        assert seen(cloud.in_force(failing(cloud, INTEREST))) == cloud.contract

    @pytest.mark.source("F3")
    @pytest.mark.parametrize("table", [SUBSCRIPTIONS, TABLE])
    def test_a_router_that_cannot_read_what_may_be_in_force_is_unseen(self, cloud: Cloud, table: str) -> None:
        """A route that was written when the one table could just not be read any more; the other can be."""
        dynamodb = failing(cloud)
        in_force = cloud.in_force(dynamodb)
        seen(in_force)
        dynamodb.targets = {table}
        cloud.clock.now_ms += 1
        if table == SUBSCRIPTIONS:
            cloud.subscribe("news", NEWS)
        else:
            cloud.publish(with_route(cloud.contract, NEWS_ROUTE))
        # The router continues until it is in force; then the contract is unseen.
        cloud.clock.now_ms += 1_000 * IN_FORCE_S - 2
        assert NEWS_ROUTE not in routes(seen(in_force))
        cloud.clock.now_ms += 1
        unseen(in_force)
        dynamodb.targets.clear()
        cloud.clock.now_ms += RETRY_MS
        assert NEWS_ROUTE in routes(seen(in_force))

    @pytest.mark.source("F3")
    def test_a_function_that_delivers_no_events_uses_what_it_read_last(self, cloud: Cloud) -> None:
        dynamodb = failing(cloud)
        in_force = cloud.in_force(dynamodb, delivers=False)
        seen(in_force)
        dynamodb.targets = {TABLE, SUBSCRIPTIONS, INTEREST}
        cloud.clock.advance(10 * IN_FORCE_S)
        seen(in_force)

    def test_a_failed_look_at_one_table_does_not_stop_the_others(
        self, cloud: Cloud, counted: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cloud.publish(with_route(cloud.contract, "new"))
        monkeypatch.setattr(InterestTable, "all", broken)
        assert "new" in routes(seen(cloud.in_force()))
        assert counted == ["ContractUnchecked"]


def broken(*_: object) -> Any:
    raise RecursionError


class TestSubscriptions:
    def test_subscriptions_come_into_force(self, cloud: Cloud) -> None:
        in_force = cloud.in_force()
        seen(in_force)
        cloud.subscribe("news", NEWS)
        assert seen(in_force) is cloud.contract
        derived = later(cloud, in_force)
        assert derived.version != cloud.contract.version
        assert routes(derived) == {*routes(cloud.contract), NEWS_ROUTE}
        assert seen(cloud.in_force()).version == derived.version  # every router comes to the same
        cloud.publish(with_route(cloud.contract, "new"))
        assert {"new", NEWS_ROUTE} <= routes(later(cloud, in_force))
        cloud.withdraw()
        cloud.unsubscribe("news")
        assert later(cloud, in_force) == cloud.contract

    def test_a_wrong_subscription_does_not_affect_the_others(self, cloud: Cloud) -> None:
        cloud.publish(with_nobody(cloud.contract))
        cloud.subscribe("news", NEWS)
        for participant in ("unknown", "nobody"):
            cloud.subscribe("lost", "org.example.news.v1", participant)
        put(cloud, SUBSCRIPTIONS, SUBSCRIPTION.key_of("family-app", "empty"))
        broken = {"filter": {"S": "{"}, "created_at": {"S": "x"}}
        put(cloud, SUBSCRIPTIONS, SUBSCRIPTION.key_of("family-app", "broken"), **broken)
        found = {each for each in routes(seen(cloud.in_force())) if "-subscribes-" in each}
        assert found == {NEWS_ROUTE}

    def test_the_contracts_own_routes_stay(self, cloud: Cloud, counted: list[str]) -> None:
        in_force = cloud.in_force()
        cloud.subscribe("news", NEWS)
        in_force._build = broken
        assert (seen(in_force), counted) == (cloud.contract, ["SubscriptionRefused"])

    def test_an_unbuilt_engine_is_unseen(self, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
        new, newer = (with_route(cloud.contract, name) for name in ("new", "newer"))
        cloud.publish(new)
        cloud.subscribe("news", NEWS)
        in_force = cloud.in_force()
        with monkeypatch.context() as patched:
            patched.setattr("lambdas.router.active_contract.with_subscriptions", broken)
            assert unseen(in_force) == new
        cloud.clock.now_ms += RETRY_MS
        before = seen(in_force)
        assert {"new", NEWS_ROUTE} <= routes(before)
        # The last engine of the same publication stays; of another one its own routes are known.
        with monkeypatch.context() as patched:
            patched.setattr("lambdas.router.active_contract.with_subscriptions", broken)
            cloud.subscribe("more", "org.eventplane.alarm.more.v1")
            assert later(cloud, in_force) is before
            cloud.publish(newer)
            cloud.clock.now_ms += INTERVAL_MS
            assert unseen(in_force) == newer
        cloud.clock.now_ms += RETRY_MS
        assert {"newer", "family-app-subscribes-more"} <= routes(seen(in_force))


class TestInterest:
    def announce(
        self, cloud: Cloud, participant: str = "family-app", leased_s: int = 10_000, by: str = "one"
    ) -> None:
        motion = new_announcement(participant, [{"exact": {"type": "org.eventplane.activity.motion.v1"}}])
        leased = LeasedAnnouncement(motion, cloud.clock() // 1_000 + leased_s)
        Records(cloud.tables, INTEREST, ANNOUNCEMENT).force(announcement_item(leased, by))

    @staticmethod
    def interested(contract: Contract, what: str = "destination") -> set[str]:
        """The inboxes (or routes) whose readers' interest is known."""
        return {getattr(each, what) for each in contract.routes if each.interest is not None}

    def test_interest_is_in_force_for_its_lease(self, cloud: Cloud) -> None:
        in_force = cloud.in_force()
        seen(in_force)
        self.announce(cloud)
        derived = later(cloud, in_force)
        assert derived.version != cloud.contract.version
        assert self.interested(derived) == {"family-app.inbox"}
        assert seen(cloud.in_force()).version == derived.version  # every router comes to the same
        # A renewal makes no other version.
        self.announce(cloud, leased_s=2 * INTERVAL_MS // 1_000)
        self.announce(cloud, leased_s=2 * INTERVAL_MS // 1_000, by="two")
        assert later(cloud, in_force) == derived
        assert later(cloud, in_force) == cloud.contract

    def test_interest_applies_to_subscriptions_of_the_same_participant(self, cloud: Cloud) -> None:
        self.announce(cloud)
        cloud.subscribe("news", NEWS)
        concerned = self.interested(seen(cloud.in_force()), "name")
        assert concerned == {"daily-life-to-family", "notices-to-relatives", NEWS_ROUTE}

    def test_a_wrong_announcement_does_not_affect_the_others(self, cloud: Cloud) -> None:
        cloud.publish(with_route(cloud.contract, "new"))
        self.announce(cloud)
        self.announce(cloud, participant="nobody")
        put(cloud, INTEREST, ANNOUNCEMENT.key_of("carers", "empty"))
        for name, filters in (("broken", '[{"new":{}}]'), ("deep", "[" * 5_000)):
            expires = {"N": str(cloud.clock())}
            put(cloud, INTEREST, ANNOUNCEMENT.key_of("carers", name), filters={"S": filters}, expires=expires)
        found = seen(cloud.in_force())
        assert self.interested(found) == {"family-app.inbox"}
        assert "new" in routes(found)

    def test_bad_interest_keeps_subscriptions(
        self, cloud: Cloud, counted: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> Any:
            raise ContractError("derived contract", [])

        monkeypatch.setattr("lambdas.router.active_contract.with_interest", refuse)
        in_force = cloud.in_force()
        self.announce(cloud)
        cloud.subscribe("news", NEWS)
        assert NEWS_ROUTE in routes(seen(in_force))
        cloud.clock.advance(IN_FORCE_S)
        found = seen(in_force)
        assert (self.interested(found), counted) == (set(), ["SubscriptionRefused"])

    def test_unread_interest_keeps_its_lease(self, cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
        dynamodb = failing(cloud)
        in_force = cloud.in_force(dynamodb)
        self.announce(cloud, leased_s=2 * INTERVAL_MS // 1_000)
        derived = later(cloud, in_force)
        dynamodb.targets = {INTEREST}
        assert seen(in_force) == derived
        assert later(cloud, in_force) == cloud.contract
        (warned,) = (vars(each) for each in caplog.records if each.levelname == "WARNING")
        assert "(Throttling) when calling the scan" in warned["error"]


def test_a_look_in_another_thread_is_never_half_visible(cloud: Cloud) -> None:
    published = with_route(cloud.contract, "new", "carers.inbox")
    cloud.publish(published)
    for moment in count():
        in_force = cloud.in_force()
        engine, is_over = interleaved(in_force.current, in_force.look, moment)
        assert isinstance(engine, Unseen) or engine.contract == published
        if is_over:
            break
    assert moment > 10


def interleaved(call: Callable[[], Any], other: Callable[[], Any], moment: int) -> tuple[Any, bool]:
    """What `call` returns if `other` runs after so many of its instructions; whether it has fewer."""
    left = moment

    def trace(frame_: FrameType, what: str, _: Any) -> Any:
        nonlocal left
        frame_.f_trace_opcodes = True
        if what == "opcode":
            if left == 0:
                sys.settrace(None)
                other()
            left -= 1
        return trace if left >= 0 else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = call()
    finally:
        sys.settrace(before)
    return result, left >= 0
