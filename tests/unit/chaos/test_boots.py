"""The boots of a device: the verdict on what was acknowledged."""

import pytest

from lab.chaos.boots import PLAIN, SENDER, THINGS, BootAlarm, BootLog, figures, judge

A, B = THINGS


BROKER, SPOOL = BootLog(A, broker_reported=True), BootLog(A, spool_reported=True)
DOWN, CONNECTED, OTHER = BootLog(A, is_up=False), BootLog(A, is_connected=True), BootLog(B)
CONNECTED_LATE = BootLog(A, is_connected=True, broker_reported=True)


@pytest.mark.parametrize(
    ("alarm", "things", "boots", "found"),
    [
        (BootAlarm("a", SENDER, 0, 0), {A}, [DOWN], {"broker_down"}),
        (BootAlarm("a", SENDER, 0, 0), {A, B}, [CONNECTED, OTHER], {"under_another_thing"}),
        (BootAlarm("a", SENDER, 0, 1), {A, B}, [CONNECTED, OTHER], set()),
        (BootAlarm("a", SENDER, 1, 1), {B}, [OTHER, CONNECTED], {"under_another_thing"}),
        (BootAlarm("a", SENDER, 0, 0), set(), [CONNECTED, BROKER], {"lost"}),
        (BootAlarm("a", SENDER, 0, 0), set(), [CONNECTED, CONNECTED, SPOOL], {"lost_and_reported"}),
        (BootAlarm("a", SENDER, 1, 1), set(), [SPOOL, CONNECTED], {"lost"}),
        (BootAlarm("a", SENDER, 0), set(), [CONNECTED], set()),
        (BootAlarm("a", PLAIN, 0), set(), [CONNECTED], set()),
        (BootAlarm("a", PLAIN, 0, 0), {B}, [CONNECTED], {"under_another_thing"}),
        (BootAlarm("a", PLAIN, 0, 0), set(), [CONNECTED, CONNECTED], {"lost"}),
        (BootAlarm("a", PLAIN, 0, 0), set(), [OTHER, CONNECTED_LATE], {"lost_and_reported"}),
        (BootAlarm("a", PLAIN, 0, 0), set(), [OTHER, CONNECTED, BROKER], {"lost"}),
    ],
)
def test_an_alarm_has_a_thing(
    alarm: BootAlarm, things: set[str], boots: list[BootLog], found: set[str]
) -> None:
    result = figures(judge([alarm], boots, {"a": things} if things else {}), boots, 0, 0)
    shown = {each.name for each in result if each.value and each.name not in ("boots", "alarms")}
    assert shown - {"broker_reports", "spool_reports"} == found
    assert {each.name for each in result if each.met is False} == found - {"lost_and_reported"}
