"""What overtakes what: the type's priority, else the event's severity, else the channel's."""

import pytest

from eventplane.attributes import AttributeValue
from eventplane.contract import Contract, Priority, compile_contract
from eventplane.envelope import write_event

CONTRACT: Contract = compile_contract(
    {
        "format": 1,
        "name": "small",
        "participants": {
            "device": {"kind": "device", "description": "A device."},
            "diary": {"kind": "device_service", "description": "Writes.", "outbox": {"priority": "low"}},
        },
        "event_types": {
            "t.decided": {"description": "Its priority is the operator's.", "priority": "normal"},
            "t.open": {"description": "Its priority is its events'."},
        },
        "routes": {"up": {"filter": {"prefix": {"type": "t."}}, "to": "device.outbox"}},
    },
    "test",
)


def priority(type: str, **more: AttributeValue) -> Priority:
    event = write_event({"id": "1", "source": "/a", "type": type, **more})
    return CONTRACT.priority(event, CONTRACT.channel("diary.outbox"))


@pytest.mark.parametrize("severity", [1, 24])
def test_no_severity_overrules_what_the_contract_decided(severity: int) -> None:
    assert priority("t.decided", severitynumber=severity) is Priority.NORMAL


@pytest.mark.parametrize("type", ["t.open", "t.undeclared"])
@pytest.mark.parametrize(
    ("severity", "expected"),
    [
        (1, Priority.LOW),
        (8, Priority.LOW),
        (9, Priority.NORMAL),
        (16, Priority.NORMAL),
        (17, Priority.URGENT),
        (24, Priority.URGENT),
    ],
)
def test_a_type_without_a_priority_leaves_it_to_the_severity(
    type: str, severity: int, expected: Priority
) -> None:
    assert priority(type, severitynumber=severity) is expected


@pytest.mark.parametrize("type", ["t.open", "t.undeclared"])
def test_without_either_the_channel_decides_and_a_text_says_nothing(type: str) -> None:
    assert priority(type) is Priority.LOW
    assert priority(type, severitytext="FATAL") is Priority.LOW
