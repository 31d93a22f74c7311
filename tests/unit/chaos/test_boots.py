"""The boots of a device: their plan, and the verdict on what was acknowledged."""

from __future__ import annotations

from random import Random

import pytest

from local.chaos.boots import (
    DAMAGE,
    EARLIEST_S,
    LATEST_S,
    PLAIN,
    SENDER,
    THINGS,
    Alarm,
    BootLog,
    figures,
    judge,
    plan,
)

A, B = THINGS


def test_a_seed_has_every_kind_of_boot_and_the_last_one_rests() -> None:
    boots = list(plan(1, 300))
    assert boots == list(plan(1, 300)) != list(plan(2, 300))
    assert {each.damage for each in boots} == {"", *DAMAGE}
    assert {each.thing for each in boots} == {*THINGS}
    assert all(EARLIEST_S <= each.clock_s <= LATEST_S for each in boots)
    assert [*plan(1, 7)][-1].rests
    assert all(each.steps_to_s == 0.0 for each in boots if each.rests)


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_what_a_power_cut_leaves(kind: str) -> None:
    content = bytes(range(1, 256)) * 40
    found = {DAMAGE[kind](content, Random(seed)) for seed in range(20)}
    assert content not in found
    assert all(each == bytes(len(each)) for each in found) is (kind == "zeros")
    assert all(content.startswith(each) for each in found) is (kind == "cut")


BROKER, SPOOL = BootLog(A, broker_reported=True), BootLog(A, spool_reported=True)
DOWN, CONNECTED, OTHER = BootLog(A, is_up=False), BootLog(A, is_connected=True), BootLog(B)
CONNECTED_LATE = BootLog(A, is_connected=True, broker_reported=True)


@pytest.mark.parametrize(
    ("alarm", "things", "boots", "found"),
    [
        (Alarm("a", SENDER, 0, 0), {A}, [DOWN], {"broker_down"}),
        (Alarm("a", SENDER, 0, 0), {A, B}, [CONNECTED, OTHER], {"under_another_thing"}),
        (Alarm("a", SENDER, 0, 1), {A, B}, [CONNECTED, OTHER], set()),
        (Alarm("a", SENDER, 1, 1), {B}, [OTHER, CONNECTED], {"under_another_thing"}),
        (Alarm("a", SENDER, 0, 0), set(), [CONNECTED, BROKER], {"lost"}),
        (Alarm("a", SENDER, 0, 0), set(), [CONNECTED, CONNECTED, SPOOL], {"lost_and_reported"}),
        (Alarm("a", SENDER, 1, 1), set(), [SPOOL, CONNECTED], {"lost"}),
        (Alarm("a", SENDER, 0), set(), [CONNECTED], set()),
        (Alarm("a", PLAIN, 0), set(), [CONNECTED], set()),
        (Alarm("a", PLAIN, 0, 0), {B}, [CONNECTED], set()),
        (Alarm("a", PLAIN, 0, 0), set(), [CONNECTED, CONNECTED], {"lost"}),
        (Alarm("a", PLAIN, 0, 0), set(), [OTHER, CONNECTED_LATE], {"lost_and_reported"}),
        (Alarm("a", PLAIN, 0, 0), set(), [OTHER, CONNECTED, BROKER], {"lost"}),
    ],
)
def test_an_acknowledged_alarm_arrives_under_its_thing_or_its_loss_is_reported(
    alarm: Alarm, things: set[str], boots: list[BootLog], found: set[str]
) -> None:
    result = figures(judge([alarm], boots, {"a": things} if things else {}), boots, 0, 0)
    shown = {each.name for each in result if each.value and each.name not in ("boots", "alarms")}
    assert shown - {"broker_reports", "spool_reports"} == found
    assert {each.name for each in result if each.met is False} == found - {"lost_and_reported"}
