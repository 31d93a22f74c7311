"""The comparison of promises: what a contract can take away, and what is no loss."""

from collections.abc import Mapping
from typing import Any

import pytest

from contract.promises import less_promised
from contract.rollout import StageLimits
from lab.histories.search import shipped
from lab.rollout.changes import HARMFUL, HARMLESS, UNNOTICED, UNSEEN
from tests.small_contract import with_changes

Changes = Mapping[str, Any]


def found(base: Changes, change: Changes) -> dict[str, str]:
    former = with_changes(shipped(), base)
    return {each.key: str(each) for each in less_promised(former, with_changes(former, change))}


@pytest.mark.parametrize("key", UNSEEN)
def test_a_promise_is_broken(key: str) -> None:
    assert key in found(*UNSEEN[key])


@pytest.mark.parametrize("change", HARMFUL.values(), ids=HARMFUL)
def test_harm_that_events_show(change: Changes) -> None:
    assert found({}, change)


@pytest.mark.parametrize(
    ("base", "change"),
    [*UNNOTICED, *(({}, each) for each in HARMLESS.values())],
    ids=lambda each: "+".join(each),
)
def test_no_promise_is_broken(base: Changes, change: Changes) -> None:
    assert found(base, change) == {}


def test_a_counter_example() -> None:
    kept: dict[str, Any] = {
        "all": [{"prefix": {"type": "org.eventplane.alarm."}}, {"prefix": {"subject": "/flat"}}]
    }
    text = found({}, {"routes/alarms-to-call-service/filter": kept})
    assert text["reader:org.eventplane.alarm.keyword.v1:call-service.inbox"] == (
        "org.eventplane.alarm.keyword.v1 of voice-service do not all reach call-service.inbox any more"
    )
    kept = {"all": [{"prefix": {"type": "org.eventplane.notice."}}, {"not": {"exact": {"subject": "night"}}}]}
    text = found({}, {"routes/notices-to-carers/filter": kept})
    assert ", if subject 'night'" in text["reader:org.eventplane.notice.carer.v1:carers.inbox"]


def test_what_a_person_accepts() -> None:
    former = shipped()
    less = less_promised(former, with_changes(former, UNSEEN["address:operations"][1]))
    assert StageLimits().refused(less) == less
    assert StageLimits(accepted=("address:*",)).refused(less) == []
