"""The alarm floor: a device refuses contracts that take alarms of its image away."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from eventplane.alarm_floor import REMEDY, floor_problems
from eventplane.contract import Contract, compile_contract
from tests.plane import shipped_contract
from tests.unit.edge.fakes import contract as silent_contract

IMAGE = shipped_contract()
KEYWORD = "org.eventplane.alarm.keyword.v1"
CLINICAL = "org.eventplane.alarm.clinical.v1"
CANARY = "org.eventplane.device.canary.v1"
CALLED = "org.eventplane.call.placed.v1"
READING = "org.eventplane.health.reading.v1"

Document = dict[str, Any]
Change = Callable[[Document], object]


def document(contract: Contract = IMAGE) -> Document:
    return json.loads(contract.canonical)


def paths(change: Change, image: Contract = IMAGE) -> list[str]:
    """The places at which the image's contract, after `change`, takes alarms away."""
    offered = document(image)
    change(offered)
    problems = floor_problems(image, compile_contract(offered, "offered"))
    assert {each.remedy for each in problems} <= {REMEDY}
    return [each.path for each in problems]


def channel(address: str, **settings: Any) -> Change:
    participant, box = address.split(".")
    return lambda offered: offered["participants"][participant][box].update(settings)


def event_type(name: str, **settings: Any) -> Change:
    return lambda offered: offered["event_types"].setdefault(name, {"description": "d"}).update(settings)


def participant(name: str, **settings: Any) -> Change:
    return lambda offered: offered["participants"][name].update(settings)


def route(name: str, **settings: Any) -> Change:
    return lambda offered: offered["routes"].setdefault(name, {}).update(settings)


def without(part: str, name: str) -> Change:
    return lambda offered: offered[part].pop(name)


def without_participant(name: str) -> Change:
    def change(offered: Document) -> None:
        del offered["participants"][name]
        offered["routes"] = {
            key: each for key, each in offered["routes"].items() if not each["to"].startswith(f"{name}.")
        }

    return change


def renamed(old: str, new: str) -> Change:
    def change(offered: Document) -> None:
        offered["participants"][new] = offered["participants"].pop(old)
        for each in offered["routes"].values():
            each["to"] = each["to"].replace(f"{old}.", f"{new}.")

    return change


def without_asks(name: str) -> Change:
    def change(offered: Document) -> None:
        del offered["participants"][name]["asks"]
        for each in [each for each in offered["routes"] if each.startswith(f"replies-to-{name}")]:
            del offered["routes"][each]

    return change


NOT_KEYWORD = {"not": {"exact": {"type": KEYWORD}}}
ALARMS = {"prefix": {"type": "org.eventplane.alarm."}}
UP, HOME = "everything-to-cloud", "alarms-to-call-service"


# tests/property/test_floor.py has every change that there is, and that none of them loses an alarm unnoticed.
@pytest.mark.parametrize(
    ("change", "path"),
    [
        (without("routes", HOME), f"routes.{HOME}"),
        (without("routes", UP), f"routes.{UP}"),
        (route(HOME, filter={"all": [ALARMS, NOT_KEYWORD]}), f"routes.{HOME}"),
        (route(HOME, to="climate-service.inbox"), f"routes.{HOME}"),
        (route(HOME, interest=[]), f"routes.{HOME}.interest"),
        (route(UP, interest=[NOT_KEYWORD]), f"routes.{UP}"),
        (route(UP, filter={"sql": f"type = '{KEYWORD}' AND subject LIKE '%'"}), f"routes.{UP}"),
        (route(HOME, delivery_guarantee="best_effort"), f"routes.{HOME}.delivery_guarantee"),
        (route(UP, delivery_guarantee="best_effort"), f"routes.{UP}"),
        (without_participant("call-service"), f"routes.{HOME}"),
        (renamed("device", "gadget"), "participants.device"),
        (without_participant("voice-service"), "participants.voice-service"),
        (participant("call-service", kind="cloud_service", inbox={}, outbox={}), f"routes.{HOME}"),
        *(
            (channel(address, **{setting: value}), f"participants.{address}.{setting}")
            for address, setting, value in (
                ("call-service.inbox", "delivery_guarantee", "best_effort"),
                ("call-service.inbox", "priority", "normal"),
                ("call-service.inbox", "expiry_s", 1),
                ("call-service.inbox", "receipts", False),
                ("voice-service.outbox", "receipts", False),
                ("voice-service.outbox", "when_full", "drop_oldest"),
                ("voice-service.outbox", "priority", "low"),
                ("device.outbox", "expiry_s", 1),
                # What crowds the alarms.
                ("climate-service.outbox", "priority", "urgent"),
            )
        ),
        *(
            (event_type(name, **{setting: value}), f"event_types.{name}.{setting}")
            for name, setting, value in (
                (KEYWORD, "delivery_guarantee", "best_effort"),
                (KEYWORD, "priority", None),
                (KEYWORD, "downlink", "state"),
                ("org.eventplane.climate.reading.v1", "priority", "urgent"),
                ("org.eventplane.activity.new.v1", "priority", "urgent"),
            )
        ),
        (without("event_types", CALLED), f"event_types.{CALLED}.priority"),
        (participant("device", inbox={"downlink": "state"}), f"event_types.{KEYWORD}.downlink"),
        # Its `asks` still names the type.
        (participant("voice-service", sends=[]), None),
        (participant("call-service", sends=[]), "participants.call-service.sends"),
        (participant("call-service", sends=None), None),
        (without_asks("voice-service"), "participants.voice-service.asks"),
    ],
)
def test_a_change_that_takes_an_alarm_away_is_named(change: Change, path: str | None) -> None:
    found = paths(change)
    assert (path in found) if path else not found


@pytest.mark.parametrize(
    "change",
    [
        lambda offered: offered,
        without("routes", "thresholds-to-health-service"),
        without("event_types", READING),
        without_participant("climate-service"),
        route(HOME, filter={"any": [ALARMS, {"exact": {"type": READING}}]}),
        route(UP, filter={"prefix": {"type": "org.eventplane."}}),
        route(UP, filter={"any": [ALARMS, {"exact": {"type": CALLED}}, {"exact": {"type": CANARY}}]}),
        channel("device.outbox", forward="wanted", batching_delay_ms=5_000),
        channel("climate-service.outbox", expiry_s=600, priority="normal", delivery_guarantee="best_effort"),
        channel("call-service.inbox", retention_s=60),
        channel("health-service.outbox", receipts=True),
        participant("health-service", sends=["org.eventplane.health.*", CLINICAL], description="new"),
        participant("climate-service", sends=["org.eventplane.*"]),
        event_type("org.eventplane.alarm.fall.v1", priority="urgent"),
        event_type(READING, priority="low"),
    ],
)
def test_any_other_change_is_accepted(change: Change) -> None:
    assert paths(change) == []


def test_undeclared_services_may_send_alarms() -> None:
    image = silent_contract()
    assert paths(participant("call", sends=["org.eventplane.other.v1"]), image) == ["participants.call.sends"]
    # What one names, the others may not send any more.
    named = paths(participant("call", sends=["org.eventplane.alarm.v1"]), image)
    assert named == ["participants.sensor.sends", "participants.display.sends"]


def test_an_urgent_outbox_keeps_the_right_to_send_everything() -> None:
    image = silent_contract(sensor={"outbox": {"priority": "urgent"}})
    assert set(paths(participant("call", sends=["org.eventplane.new.v1"]), image)) == {
        "participants.call.sends"
    }
    assert set(paths(participant("sensor", sends=["org.eventplane.new.*"]), image)) == {
        "participants.sensor.sends"
    }


def test_alarms_of_normal_types_do_not_wait_longer_for_a_batch() -> None:
    """They are alarms by the inbox that they go to; those of urgent types wait for no batch at all."""
    image = silent_contract(display={"inbox": {"priority": "urgent"}})
    longer = channel("device.outbox", batching_delay_ms=300_000)
    assert paths(longer, image) == ["participants.device.outbox.batching_delay_ms"]
    assert paths(channel("device.outbox", batching_delay_ms=0), image) == []
    assert paths(longer) == []
    gathers = channel("sensor.outbox", batching_delay_ms=300_000)
    assert paths(gathers, image) == ["participants.sensor.outbox.batching_delay_ms"]
    assert paths(channel("health-service.outbox", batching_delay_ms=300_000)) == []
