"""Which contract the router goes by, whatever the table holds and whether it answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from contract import load_contract
from eventplane.contract import Contract, compile_contract
from eventplane.contract.publication import (
    ContractTable,
    Head,
    contract_item,
    contract_key,
    head_item,
    head_key,
    read_contract,
    read_head,
)
from eventplane.contract.subscription import IN_FORCE_S, Subscription, new_subscription
from eventplane.contract.subscription_table import subscription_key
from eventplane.interest.announcement import new_announcement
from eventplane.interest.table import LeasedAnnouncement, interest_item, interest_key
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.tables import InterestTable, SubscriptionTable
from lambdas.router.active_contract import RETRY_MS, ActiveContract, Unseen
from lambdas.router.engine import Engine
from lambdas.router.service import LIMITS
from tests.unit.lambdas.publishing import INTERVAL_MS, Table, Throttled, changed, seen, subscribe, unseen
from tests.unit.lambdas.support import INTEREST, SUBSCRIPTIONS, TABLE, Cloud, Unwilling


@dataclass(frozen=True)
class _Made:
    contract: Contract


@pytest.fixture
def table(cloud: Cloud, contract: Contract) -> Table:
    return Table(cloud, contract)


@pytest.mark.source("P13")
def test_without_a_publication_it_is_the_bundled_one(table: Table, contract: Contract) -> None:
    assert seen(table.in_force()).contract is contract


@pytest.mark.source("P13", "P-W1")
def test_a_published_one_is_followed_within_the_interval_and_withdrawn_again(
    table: Table, contract: Contract
) -> None:
    in_force = table.in_force()
    seen(in_force)
    new = changed(contract, "new")
    table.put(new)
    table.now_ms += INTERVAL_MS - 1
    assert seen(in_force).contract == contract
    table.now_ms += 1
    assert seen(in_force).contract == new
    table.withdraw()
    assert table.later(in_force) == contract.version


def test_one_for_another_deployment_is_none_of_ours(cloud: Cloud, table: Table, contract: Contract) -> None:
    Table(cloud, changed(contract, "other-base")).put(changed(contract, "new"))
    assert seen(table.in_force()).contract == contract


def missing(table: Table, contract: Contract) -> None:
    table.name("0" * 16)


def damaged(table: Table, contract: Contract) -> None:
    table.cloud.dynamodb.put_item(
        TableName=TABLE, Item={**contract_key("1" * 16), "compiled": {"B": b"not zlib"}}
    )
    table.name("1" * 16)


def renamed(table: Table, contract: Contract) -> None:
    item = {**contract_item(changed(contract, "renamed")), **contract_key("2" * 16)}
    table.cloud.dynamodb.put_item(TableName=TABLE, Item=item)
    table.name("2" * 16)


def unreachable(table: Table, contract: Contract) -> None:
    document = json.loads(contract.canonical)
    document["participants"]["nobody"] = {"kind": "cloud_service", "description": "Has no queue."}
    table.put(changed(compile_contract(document, "x"), "lost", "nobody.inbox"))


def without_source(table: Table, contract: Contract) -> None:
    document = json.loads(contract.canonical)
    text = json.dumps(document["participants"].pop("device")), json.dumps(document["routes"])
    document["participants"]["gadget"] = json.loads(text[0])
    document["routes"] = json.loads(text[1].replace('"device.', '"gadget.'))
    table.put(compile_contract(document, "x"))


BREAKS = [missing, damaged, renamed, unreachable, without_source]


@pytest.mark.parametrize("break_it", BREAKS)
def test_a_broken_one_never_replaces_a_good_one(
    table: Table, contract: Contract, break_it: Callable[[Table, Contract], None]
) -> None:
    in_force = table.in_force()
    good = changed(contract, "good")
    table.put(good)
    assert table.later(in_force) == good.version
    break_it(table, contract)
    assert table.later(in_force) == good.version
    # Also in a process that starts now, and for the next good one it is no hindrance.
    fresh = table.in_force()
    assert seen(fresh).contract == good
    table.put(changed(contract, "better"))
    assert table.later(fresh) == table.later(in_force) == changed(contract, "better").version


@pytest.mark.parametrize("break_it", BREAKS)
def test_without_an_earlier_publication_it_is_the_bundled_one(
    table: Table, contract: Contract, break_it: Callable[[Table, Contract], None]
) -> None:
    break_it(table, contract)
    assert seen(table.in_force()).contract == contract


def test_a_broken_one_is_read_once_and_counted_at_every_look(
    table: Table, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    monkeypatch.setattr("lambdas.router.active_contract.count", counted.append)
    read: list[str] = []
    real = ContractTable.contract
    monkeypatch.setattr(
        ContractTable, "contract", lambda self, version: (read.append(version), real(self, version))[1]
    )
    unreachable(table, contract)
    in_force = table.in_force()
    for _ in range(3):
        table.later(in_force)
    assert (counted, len(read)) == (["ContractRefused"] * 3, 1)


@pytest.mark.parametrize("spoil", [True, False])
def test_one_that_is_published_again_is_in_force_at_the_next_look(
    table: Table, contract: Contract, spoil: bool
) -> None:
    new = changed(contract, "new")
    if spoil:
        table.cloud.dynamodb.put_item(
            TableName=TABLE, Item={**contract_key(new.version), "compiled": {"B": b"not zlib"}}
        )
    table.name(new.version)
    in_force = table.in_force()
    assert table.later(in_force) == contract.version
    table.put(new)
    assert table.later(in_force) == new.version


def test_once_seen_the_last_one_stays_while_the_table_cannot_be_read(
    table: Table, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    monkeypatch.setattr("lambdas.router.active_contract.count", counted.append)
    dynamodb = Throttled(table.cloud.dynamodb)
    in_force = table.in_force(dynamodb)
    good = changed(contract, "good")
    table.put(good)
    assert seen(in_force).contract == good
    dynamodb.tables = {TABLE}
    assert table.later(in_force) == good.version
    table.now_ms += RETRY_MS
    assert seen(in_force).contract == good
    # What is down is not asked again before the interval is over.
    assert (counted, dynamodb.asked.count(TABLE)) == (["ContractUnchecked"], 3)


@pytest.mark.parametrize("throttled", [TABLE, SUBSCRIPTIONS])
def test_a_process_that_cannot_read_a_table_has_not_seen_the_contract_in_force(
    table: Table, contract: Contract, throttled: str
) -> None:
    new = changed(contract, "new")
    table.put(new)
    subscribe(table, "news", "org.eventplane.alarm.news.v1")
    dynamodb = Throttled(table.cloud.dynamodb, throttled)
    in_force = table.in_force(dynamodb, dynamodb, dynamodb)

    # What is known already is better than what came with the code.
    assert unseen(in_force).contract.version == (contract if throttled == TABLE else new).version
    assert not in_force.is_seen
    dynamodb.tables.clear()
    table.now_ms += RETRY_MS
    assert {"new", "family-app-subscribes-news"} <= routes(in_force)
    assert in_force.is_seen


def test_the_next_look_for_what_is_unseen_waits_for_a_second_not_for_the_interval(table: Table) -> None:
    dynamodb = Throttled(table.cloud.dynamodb, TABLE)
    in_force = table.in_force(dynamodb, dynamodb, dynamodb)
    for _ in range(5):
        unseen(in_force)
    table.now_ms += RETRY_MS - 1
    unseen(in_force)
    # The first table that fails ends the look: each takes seconds where nobody answers.
    assert dynamodb.asked == [TABLE]
    table.now_ms += 1
    unseen(in_force)
    assert dynamodb.asked == [TABLE] * 2


@pytest.mark.parametrize("was_seen", [True, False])
def test_tables_that_hang_leave_the_time_to_send_alarms_by_what_is_known(
    table: Table, contract: Contract, was_seen: bool
) -> None:
    class Hanging(Throttled):
        def _meet(self, name: str) -> None:
            if name in self.tables:
                table.now_ms += WORST_CALL_MS
            super()._meet(name)

    dynamodb = Hanging(table.cloud.dynamodb)
    in_force = table.in_force(dynamodb, dynamodb, dynamodb)
    if was_seen:
        seen(in_force)
    dynamodb.tables = {TABLE, SUBSCRIPTIONS, INTEREST}
    table.now_ms += INTERVAL_MS
    waited: list[int] = []
    for _ in range(20):  # a message a second, but for what the function takes
        began_ms = table.now_ms
        in_force.engine()
        waited.append(table.now_ms - began_ms)
        table.now_ms += 1_000
    assert max(waited) == WORST_CALL_MS < 30_000 - LIMITS.planning_ms
    assert sum(waited) <= 2 * WORST_CALL_MS
    dynamodb.tables.clear()
    table.now_ms += 2 * WORST_CALL_MS
    seen(in_force)


def test_a_clock_that_is_put_back_does_not_postpone_the_next_look(table: Table) -> None:
    dynamodb = Throttled(table.cloud.dynamodb, TABLE)
    in_force = table.in_force(dynamodb)
    table.now_ms = 600_000
    unseen(in_force)
    dynamodb.tables.clear()
    table.now_ms = 0
    seen(in_force)


def test_interest_need_not_be_known_because_without_it_more_is_delivered(
    table: Table, contract: Contract
) -> None:
    assert seen(table.in_force(interest=Throttled(table.cloud.dynamodb, INTEREST))).contract == contract


def test_a_head_that_is_none_changes_nothing_and_a_new_process_waits_for_one(
    table: Table, contract: Contract
) -> None:
    in_force = table.in_force()
    assert seen(in_force).contract == contract
    table.cloud.dynamodb.put_item(TableName=TABLE, Item=head_key(contract.version))
    assert table.later(in_force) == contract.version
    # It may have named any contract.
    assert unseen(table.in_force()).contract == contract


def test_what_is_written_is_what_is_read(contract: Contract) -> None:
    assert read_contract(contract.version, contract_item(contract)) == contract
    for previous in (None, "a" * 16):
        head = Head("b" * 16, "c" * 16, previous, "2026-01-01T00:00:00Z")
        assert read_head("b" * 16, head_item(head)) == head


def routes(in_force: ActiveContract[Engine]) -> set[str]:
    return {each.name for each in seen(in_force).contract.routes}


def test_subscriptions_are_in_force_after_the_interval_under_a_version_of_their_own(
    table: Table, contract: Contract
) -> None:
    in_force = table.in_force()
    assert seen(in_force).contract is contract
    subscribe(table, "news", "org.eventplane.alarm.news.v1")
    assert seen(in_force).contract is contract
    derived = table.later(in_force)
    assert derived != contract.version
    assert routes(in_force) == {*(each.name for each in contract.routes), "family-app-subscribes-news"}
    assert seen(table.in_force()).contract.version == derived  # every router comes to the same
    table.cloud.dynamodb.delete_item(TableName=SUBSCRIPTIONS, Key=subscription_key("family-app", "news"))
    assert table.later(in_force) == contract.version


def test_subscriptions_go_along_with_a_published_contract(table: Table, contract: Contract) -> None:
    in_force = table.in_force()
    subscribe(table, "news", "org.eventplane.alarm.news.v1")
    table.put(changed(contract, "new"))
    table.later(in_force)
    assert {"new", "family-app-subscribes-news"} <= routes(in_force)
    table.withdraw()
    table.later(in_force)
    assert "new" not in routes(in_force)
    assert "family-app-subscribes-news" in routes(in_force)


def test_a_subscription_that_is_wrong_takes_no_other_with_it(table: Table) -> None:
    subscribe(table, "news", "org.eventplane.alarm.news.v1")
    subscribe(table, "lost", "org.example.news.v1", participant="nobody")
    broken = {**subscription_key("family-app", "broken"), "filter": {"S": "{"}, "created_at": {"S": "x"}}
    table.cloud.dynamodb.put_item(TableName=SUBSCRIPTIONS, Item=broken)
    table.cloud.dynamodb.put_item(TableName=SUBSCRIPTIONS, Item=subscription_key("family-app", "empty"))
    found = {each for each in routes(table.in_force()) if "-subscribes-" in each}
    assert found == {"family-app-subscribes-news"}


def test_a_subscription_without_a_queue_takes_no_other_with_it(table: Table, contract: Contract) -> None:
    document = json.loads(contract.canonical)
    document["participants"]["nobody"] = {"kind": "cloud_service", "description": "Has no queue."}
    table.put(compile_contract(document, "x"))
    subscribe(table, "news", "org.eventplane.alarm.news.v1")
    subscribe(table, "lost", "org.example.news.v1", participant="nobody")
    found = {each for each in routes(table.in_force()) if "-subscribes-" in each}
    assert found == {"family-app-subscribes-news"}


def test_while_the_subscriptions_cannot_be_read_the_last_ones_stay(table: Table, contract: Contract) -> None:
    class Moody:
        failing = False

        def get_paginator(self, name: str) -> Any:
            if self.failing:
                raise ClientError({"Error": {"Code": "Throttling"}}, "Scan")
            return table.cloud.dynamodb.get_paginator(name)

    moody = Moody()
    in_force = table.in_force(subscriptions=moody)
    subscribe(table, "news", "org.eventplane.alarm.news.v1")
    derived = table.later(in_force)
    moody.failing = True
    assert table.later(in_force) == derived
    table.put(changed(contract, "new"))
    table.later(in_force)
    assert {"new", "family-app-subscribes-news"} <= routes(in_force)


@pytest.mark.source("F3")
def test_a_router_that_could_not_read_what_may_be_in_force_says_so(table: Table) -> None:
    """A subscription that was written when the table could just not be read any more."""
    dynamodb = Throttled(table.cloud.dynamodb)
    in_force = table.in_force(subscriptions=dynamodb)
    seen(in_force)
    dynamodb.tables = {SUBSCRIPTIONS}
    table.now_ms += 1
    subscribe(table, "news", "org.eventplane.alarm.news.v1")
    # Until it is in force, the router goes on; then it knows that it does not know.
    table.now_ms += 1_000 * IN_FORCE_S - 2
    assert "family-app-subscribes-news" not in routes(in_force)
    table.now_ms += 1
    unseen(in_force)
    assert not in_force.is_seen
    dynamodb.tables.clear()
    table.now_ms += RETRY_MS
    assert "family-app-subscribes-news" in routes(in_force)


@pytest.mark.source("F3")
def test_what_does_not_deliver_events_answers_by_what_it_read_last(table: Table, contract: Contract) -> None:
    dynamodb = Throttled(table.cloud.dynamodb)
    in_force = ActiveContract(
        bundled=contract,
        build=lambda made: _Made(made),
        table=ContractTable(dynamodb, TABLE),
        subscriptions=SubscriptionTable(dynamodb, SUBSCRIPTIONS),
        interest=InterestTable(dynamodb, INTEREST),
        refresh_ms=INTERVAL_MS,
        clock=lambda: table.now_ms,
    )
    assert isinstance(in_force.engine(), _Made)
    dynamodb.tables = {TABLE, SUBSCRIPTIONS, INTEREST}
    table.now_ms += 10_000 * IN_FORCE_S
    assert isinstance(in_force.engine(), _Made)


@pytest.mark.source("F3")
@given(
    st.lists(
        st.tuples(st.sampled_from([1, 9_000, 29_999]), st.booleans(), st.booleans()), min_size=3, max_size=12
    )
)
def test_what_is_subscribed_is_routed_from_the_moment_on(
    steps: list[tuple[int, bool, bool]],
) -> None:
    """Time passes, the table answers or not, somebody subscribes or not; each time an event is routed."""
    now_ms = 0
    written: list[tuple[int, Subscription]] = []

    class Tables:
        """Both tables; of the second only what was written, as a consistent read has it."""

        is_down = False

        def all(self, now_s: float = 0) -> frozenset[Any]:
            if self.is_down:
                raise ClientError({"Error": {"Code": "Throttling"}}, "Scan")
            return frozenset(each for _, each in written)

        def head(self, version: str) -> None:
            return None

    class NoInterest:
        def all(self, now_s: float) -> frozenset[Any]:
            return frozenset()

    tables: Any = Tables()
    nobody: Any = NoInterest()
    in_force = ActiveContract(
        bundled=load_contract(),
        build=lambda made: _Made(made),
        table=tables,
        subscriptions=tables,
        interest=nobody,
        refresh_ms=INTERVAL_MS,
        clock=lambda: now_ms,
        queues={"family-app.inbox"},
    )
    for wait_ms, is_down, subscribes in steps:
        now_ms += wait_ms
        tables.is_down = is_down
        if subscribes:
            name = f"news{len(written)}"
            wanted = {"exact": {"type": "org.eventplane.alarm.news.v1"}}
            written.append((now_ms, new_subscription("family-app", name, wanted, f"{len(written):09}")))
        found = in_force.engine()
        due = {each.route for at_ms, each in written if now_ms >= at_ms + 1_000 * IN_FORCE_S}
        assert isinstance(found, Unseen) or due <= {each.name for each in found.contract.routes}
        assert isinstance(found, Unseen) is not in_force.is_seen


MOTION = {"exact": {"type": "org.eventplane.activity.motion.v1"}}


def announce(table: Table, participant: str = "family-app", until_s: int = 10_000, by: str = "one") -> None:
    leased = LeasedAnnouncement(new_announcement(participant, [MOTION]), until_s)
    table.cloud.dynamodb.put_item(TableName=INTEREST, Item=interest_item(leased, by))


def interested(in_force: ActiveContract[Engine]) -> set[str]:
    """The inboxes whose readers' interest is known."""
    routes = seen(in_force).contract.routes
    return {each.destination for each in routes if each.interest is not None}


def test_announced_interest_is_in_force_after_the_interval_and_unknown_again_when_its_lease_is_over(
    table: Table, contract: Contract
) -> None:
    in_force = table.in_force()
    assert seen(in_force).contract is contract
    announce(table, until_s=2 * INTERVAL_MS // 1_000)
    derived = table.later(in_force)
    assert derived != contract.version
    assert interested(in_force) == {"family-app.inbox"}
    assert seen(table.in_force()).contract.version == derived  # every router comes to the same
    assert table.later(in_force) == contract.version


def test_a_renewed_announcement_makes_no_other_version(table: Table) -> None:
    in_force = table.in_force()
    announce(table)
    derived = table.later(in_force)
    announce(table, until_s=20_000)
    announce(table, by="two")
    assert table.later(in_force) == derived


def test_interest_goes_along_with_subscriptions_of_the_same_participant(table: Table) -> None:
    announce(table)
    subscribe(table, "news", "org.eventplane.alarm.news.v1")
    routes = seen(table.in_force()).contract.routes
    concerned = {each.name for each in routes if each.interest is not None}
    assert concerned == {"daily-life-to-family", "notices-to-relatives", "family-app-subscribes-news"}


def test_an_announcement_that_is_wrong_takes_no_other_with_it(table: Table) -> None:
    announce(table)
    announce(table, participant="nobody")
    table.cloud.dynamodb.put_item(TableName=INTEREST, Item=interest_key("carers", "empty"))
    broken = {**interest_key("carers", "broken"), "filters": {"S": '[{"new":{}}]'}, "expires": {"N": "10000"}}
    table.cloud.dynamodb.put_item(TableName=INTEREST, Item=broken)
    assert interested(table.in_force()) == {"family-app.inbox"}


def test_while_the_interest_cannot_be_read_what_was_announced_holds_for_its_lease(
    table: Table, contract: Contract, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Unwilling(table.cloud.dynamodb, "get_paginator")
    willing = table.in_force()
    announce(table, until_s=2 * INTERVAL_MS // 1_000)
    derived = table.later(willing)
    willing._interest = InterestTable(failing, INTEREST)
    assert seen(willing).contract.version == derived
    assert table.later(willing) == contract.version
    (warned,) = (vars(each) for each in caplog.records if each.levelname == "WARNING")
    assert "(Throttling) when calling the get_paginator" in warned["error"]


def test_no_item_of_interest_keeps_what_is_published_from_routers(table: Table, contract: Contract) -> None:
    table.put(changed(contract, "new"))
    subscribe(table, "news", "org.eventplane.alarm.news.v1")
    announce(table)
    deep = {**interest_key("carers", "x"), "filters": {"S": "[" * 5_000}, "expires": {"N": "10000"}}
    table.cloud.dynamodb.put_item(TableName=INTEREST, Item=deep)
    in_force = table.in_force()
    assert {"new", "family-app-subscribes-news"} <= routes(in_force)
    assert interested(in_force) == {"family-app.inbox"}


def test_whatever_ends_a_look_at_a_table_the_others_are_read(
    table: Table, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    monkeypatch.setattr("lambdas.router.active_contract.count", counted.append)
    table.put(changed(contract, "new"))
    in_force = table.in_force()
    monkeypatch.setattr(InterestTable, "all", broken)
    assert "new" in routes(in_force)
    assert counted == ["ContractUnchecked"]


def broken(*_: object) -> Any:
    raise RecursionError


def test_it_is_unseen_until_an_engine_is_made_of_what_was_read(
    table: Table, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = changed(contract, "new")
    table.put(new)
    subscribe(table, "news", "org.eventplane.alarm.news.v1")
    in_force = table.in_force()
    with monkeypatch.context() as patched:
        patched.setattr("lambdas.router.active_contract.with_subscriptions", broken)
        assert unseen(in_force).contract == new
        assert not in_force.is_seen
    table.now_ms += RETRY_MS
    assert {"new", "family-app-subscribes-news"} <= routes(in_force)
    before = seen(in_force)
    # Of the same publication the last engine stays, of another one what it says itself is at hand.
    with monkeypatch.context() as patched:
        patched.setattr("lambdas.router.active_contract.with_subscriptions", broken)
        subscribe(table, "more", "org.eventplane.alarm.more.v1")
        table.now_ms += INTERVAL_MS
        assert seen(in_force) is before
        newer = changed(contract, "newer")
        table.put(newer)
        table.now_ms += INTERVAL_MS
        assert unseen(in_force).contract == newer
    table.now_ms += RETRY_MS
    assert {"newer", "family-app-subscribes-more"} <= routes(in_force)
