"""The home hop: what a device states that it stored for services beside it, and what became of it."""

from dataclasses import replace
from typing import Any

import pytest

from eventplane.device_reports import STATED_PENDING
from eventplane.report_reader import SALVAGE_SHIFT
from glue_jobs.delivery_audit.device import DeviceJudgement, judge_device
from glue_jobs.delivery_audit.event_group import HOUR_MS
from glue_jobs.delivery_audit.home import HOME
from tests.unit.glue_jobs.home import NOON_MS, SCOPE, SIREN, Home, judged_together, steps

HOMES = replace(SCOPE, homes={SIREN: True}, lateness_ms=HOUR_MS)
MOST = STATED_PENDING // 2
HOUR = "manifest, wait 1"
LATER = ", ".join([HOUR] * 13)


def counts(judged: DeviceJudgement) -> dict[str, int]:
    """What is counted at the home hop, without zeros."""
    by_epoch = {name: sum(row[f"home_{name}"] for row in judged.epochs) for name in HOME}
    assert by_epoch == {name: judged.homes[SIREN, name] for name in HOME}
    return {name: count for name, count in by_epoch.items() if count}


def at_home(judged: DeviceJudgement) -> list[tuple[Any, ...]]:
    """The findings of the hop."""
    own = [each for each in judged.findings if each.hop == "device_inbox"]
    assert all((each.device, each.destination) == ("home-1", SIREN) for each in own)
    return [(each.kind, each.epoch, each.sequence) for each in own]


@pytest.mark.parametrize(
    ("story", "lost", "counted"),
    [
        (f"send 2 home=taken, keep 1 home=taken, {LATER}", [], {"stated": 3, "receipt": 3}),
        # The review: with every `acknowledged_to` at 0 the report was the same.
        (f"send 3 home=waits, {LATER}", [1, 2, 3], {"stated": 3, "lost": 3}),
        # An alarm is taken before what was stored first; both go up as well, or neither does.
        (
            f"send 1, keep 1 home=waits, send 1 home=taken, {LATER}",
            [2],
            {"stated": 2, "receipt": 1, "lost": 1},
        ),
        (f"lose 1 home=waits, expire 1, {LATER}", [1], {"stated": 1, "lost": 1}),
        # It is taken late, which is no loss; one that waits only until the next manifest is none yet.
        (f"send 1 home=waits, {HOUR}, {HOUR}, take 1, {LATER}", [], {"stated": 1, "receipt": 1}),
        (f"{LATER}, wait -2, send 1 home=waits, manifest", [], {"stated": 1, "pending": 1}),
        # The forwarder stopped with it, or went on and said nothing more.
        ("send 1 home=waits, manifest final=True", [1], {"stated": 1, "lost": 1}),
        ("send 1 home=waits, manifest final=True, send 1", [], {"stated": 1, "unattested": 1}),
        ("send 1 home=waits, manifest", [], {"stated": 1, "unattested": 1}),
        # Forwarders up to 0.3.0 name the first number that is pending, and earlier ones none.
        (
            f"send 2 home=waits, send 1 home=taken, {LATER.replace('manifest', 'manifest lists=False')}",
            [1],
            {"stated": 3, "lost": 1, "unattested": 2},
        ),
        (
            f"send 2 home=taken, {LATER.replace('manifest', 'manifest lists=False')}",
            [],
            {"stated": 2, "receipt": 2},
        ),
        # Behind the last number of a full list nothing is known.
        (
            f"send {MOST + 5} home=waits, {LATER}",
            list(range(1, MOST + 1)),
            {"stated": MOST + 5, "lost": MOST, "unattested": 5},
        ),
    ],
)
def test_home_events_are_taken_or_lost(story: str, lost: list[int], counted: dict[str, int]) -> None:
    judged = Home().live(story).judged(HOMES)
    assert [each for each in at_home(judged) if each[0] == "lost"] == [("lost", "e1", each) for each in lost]
    assert counts(judged) == counted


def test_a_forwarder_that_states_nothing_is_accused_of_nothing() -> None:
    home = Home().live("send 2 home=waits, manifest, wait 1")
    home.alter(lambda data: {**data, "statements": [_without(each) for each in data["statements"]]})
    judged = home.live("send 1, wait 12").judged(HOMES)
    assert (at_home(judged), counts(judged)) == ([], {"stated": 2, "unstated": 2})


def _without(statement: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in statement.items() if name not in ("acknowledged_to", "pending")}


def test_without_receipts_only_the_broker_is_known_to_have_it() -> None:
    judged = Home().live(f"send 2 home=taken, {LATER}").judged(replace(HOMES, homes={SIREN: False}))
    assert counts(judged) == {"stated": 2, "broker": 2}
    assert Home().live(f"send 2 home=taken, {LATER}").judged().homes == {}


def test_what_the_device_gave_up_is_explained_and_found_once() -> None:
    story = f"send 3 home=taken, manifest, expire 2 of={SIREN}, expire 2 of={SIREN}, {LATER}"
    judged = Home().live(story).judged(HOMES)
    assert at_home(judged) == [("expired", "e1", 2)]
    assert counts(judged) == {"stated": 3, "receipt": 2, "explained": 1}


def test_what_is_young_is_pending() -> None:
    home = Home().live(f"send 1 home=waits, {LATER}")
    early = home.judged(replace(HOMES, watermark_ms=home.events[0].at_ms - 1))
    assert (at_home(early), counts(early)) == ([], {"stated": 1, "pending": 1})


@pytest.mark.parametrize(("saved", "lost"), [(True, [1]), (False, [])])
def test_of_a_damaged_store_what_was_saved_and_still_waits_is_lost(saved: bool, lost: list[int]) -> None:
    home = Home().live(f"send 2 home=waits, {HOUR}, {HOUR}")
    home.begin("e2")
    home.started("recovered", lost_epoch="e1")
    home.waiting = [1 - SALVAGE_SHIFT] if saved else []
    judged = home.live(LATER).judged(HOMES)
    assert at_home(judged) == [("lost", "e1", each) for each in lost]
    assert counts(judged) == {"stated": 2, "unattested": 2 - len(lost)} | ({"lost": 1} if lost else {})


@pytest.mark.parametrize(
    "changed",
    [
        {"pending": [2, 1]},
        {"pending": [1, 9]},
        {"pending": [1], "acknowledged_to": 1},
        {"count": 9},
    ],
    ids=["reversed", "of the future", "ended as well", "more than numbers"],
)
def test_a_statement_that_contradicts_itself_accuses_nobody(changed: dict[str, Any]) -> None:
    home = Home().live("send 2 home=waits, manifest")
    home.alter(
        lambda data: {**data, "statements": [data["statements"][0], {**data["statements"][1], **changed}]}
    )
    judged = home.live("wait 12").judged(HOMES)
    assert [each.kind for each in judged.findings] == ["contradiction"]
    assert counts(judged) == {}


@pytest.mark.parametrize(
    ("story", "lost"),
    [
        ("send 2 due=v1, send 1 due=v1 home=taken, send 1, keep 2 home=taken", [1, 2]),
        # It is within the stated range, but one more than is counted, and the report does not say which.
        ("send 1 home=taken due=v1, send 1 due=v1, send 1 home=taken due=v1", [None]),
        ("send 2 due=v1 home=taken", []),
        # The device did not follow that contract, or does not say.
        ("send 2 due=v2", []),
    ],
)
def test_what_the_home_lacks_is_lost(story: str, lost: list[int | None]) -> None:
    judged = Home().live(f"{story}, {LATER}").judged(HOMES)
    assert at_home(judged) == [("lost", "e1", each) for each in lost]
    assert counts(judged).get("lost", 0) == len(lost)
    unsaid = Home().live(f"{story}, manifest contract=, wait 13").judged(HOMES)
    assert at_home(unsaid) == []
    young = Home().live(f"{story}, manifest").judged(replace(HOMES, watermark_ms=0))
    assert at_home(young) == []


@pytest.mark.parametrize(
    ("story", "rows"),
    [
        ("send 1 due=v1 home=taken", [(1, "delivered", "handled", True)]),
        ("send 2 due=v1 home=waits", [(1, "lost", "lost", False), (2, "lost", "lost", False)]),
        ("send 1 due=v1, keep 1 home=taken", [(1, "lost", "lost", False)]),
        (f"send 1 due=v1 home=waits, expire 1 of={SIREN}", [(1, "expired", "expired", False)]),
        ("send 1 due=v2 home=taken", []),
        ("send 1 home=taken", []),
    ],
)
def test_each_due_event_has_a_row(story: str, rows: list[tuple[Any, ...]]) -> None:
    scope = replace(HOMES, is_listed=True)
    found = Home().live(f"{story}, {LATER}").judged(scope).deliveries
    assert [(each.sequence, each.verdict, each.fate, each.rung_at_ms is not None) for each in found] == rows
    assert all(
        (each.hop, each.destination, each.device) == ("device_inbox", SIREN, "home-1") for each in found
    )
    assert Home().live(f"{story}, {LATER}").judged(HOMES).deliveries == []


def test_a_row_is_of_the_event_as_it_came() -> None:
    home = Home().live("send 1 due=v1 home=waits, manifest")
    home.events.append(home.events[0]._replace(at_ms=NOON_MS + 1))
    home.live(f"wait 13, move, take 1, send 1, {LATER}")
    found = judged_together(home, scope=replace(HOMES, is_listed=True))
    (row,) = (row for each in found.values() for row in each.deliveries)
    assert (row.date, row.device, row.sender) == ("2026-03-01", "home-1", "home-1/")
    assert (row.accepted_at_ms, row.verdict) == (NOON_MS, "delivered")


def test_numbers_that_are_stated_twice_count_once() -> None:
    home = Home().live("send 1 home=waits, manifest, wait 1, send 1 home=waits")
    home._at_home.insert(0, 1)
    judged = home.live(LATER).judged(HOMES)
    assert ("contradiction", 4) in [(each.kind, each.sequence) for each in judged.findings]
    assert counts(judged) == {"stated": 1, "lost": 1}


def test_a_judgement_takes_time_linear_in_what_is_stated() -> None:
    def taken(hours: int) -> int:
        story = ["send 50 home=waits", *[f"send 1 home=taken, expire 1 of={SIREN}, manifest"] * hours]
        home = Home().live(", ".join(story))
        rows = home.gathered()
        return steps(lambda: judge_device(rows, HOMES))

    assert taken(400) < 2.5 * taken(200)
