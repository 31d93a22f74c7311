"""When a chaos run passes: nothing wrong but what devices gave up, or what the run is to measure."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eventplane.contract import Contract
from lab.chaos.arrivals import Arrivals
from lab.chaos.faults import InjectedFault
from lab.chaos.load import ALARMS, READINGS, TimedLog
from lab.chaos.run import RunResult
from lab.chaos.verdict import by_themselves, summary
from lab.demo.summary import IRREGULAR
from lab.oracle import Key, ServiceResult
from lab.process import ChildExit

EXPECTED = 100
ONE: Key = ("/homes/home-1/activity-service", "1")
FOREIGN: Key = ("/homes/home-2/activity-service", "1")


def outcome(
    contract: Contract,
    folder: Path,
    *,
    lost: tuple[Key, ...] = (),
    audited: int | None = None,
    gaps: int = 0,
    given_up: int = 0,
    kind: str | None = None,
    **totals: int,
) -> RunResult:
    delivered = EXPECTED - len(lost)
    audit: dict[str, Any] = {
        "totals": {**dict.fromkeys(("lost", *IRREGULAR), 0), **totals},
        "kinds": [{"kind": kind, "hop": "router", "count": 1}] if kind else [],
        "by_destination": {
            f"{READINGS}.inbox": {"delivered_unique": delivered if audited is None else audited}
        },
        "devices": [{"client_id": "home-1", "gaps": gaps}],
        "latency": [],
        "findings": [],
    }
    return RunResult(
        verdicts=[ServiceResult(READINGS, EXPECTED, delivered, lost, (), 0)],
        dead_letters=0,
        audit=audit,
        given_up=+Counter({"home-1": given_up}),
        sent=TimedLog(contract),
        arrivals={name: Arrivals(folder / name) for name in (ALARMS, READINGS)},
        called={},
        struck=[InjectedFault("line-cut", "home-1", 1.0, 2.0)],
        samples=[],
        send_s=1.0,
        drain_s=1.0,
        gave_up_waiting_for=["arrivals"],
        contract_version="v",
        cloud="none",
    )


def wrong(outcome: RunResult, *, loses: bool = False) -> set[str]:
    document = summary(outcome, {"homes": 1}, loses=loses)
    assert (document["verdict"] == "passed") is not bool(document["wrong"])
    return set(document["wrong"])


@pytest.mark.source("P16")
@pytest.mark.parametrize(
    ("found", "called"),
    [
        ({}, set()),
        ({"lost": (ONE,)}, {"lost"}),
        ({"audited": 99}, {"audit disagrees"}),
        ({"gaps": 1}, {"numbers missing"}),
        ({"kind": "forged"}, {"forged"}),
        ({"kind": "reordered"}, set()),
        ({"lost": (ONE,), "gaps": 1, "given_up": 1}, set()),
        # A heartbeat was given up beside it: it has a number, and nobody expects it.
        ({"lost": (ONE,), "gaps": 2, "given_up": 2}, set()),
        ({"lost": (ONE,), "gaps": 2, "given_up": 1}, {"lost", "numbers missing"}),
        ({"lost": (FOREIGN,), "gaps": 1, "given_up": 1}, {"lost", "numbers missing"}),
    ],
)
def test_only_what_a_device_gave_up_may_be_missing(
    contract: Contract, tmp_path: Path, found: dict[str, Any], called: set[str]
) -> None:
    assert wrong(outcome(contract, tmp_path, **found)) == called


@pytest.mark.source("P16")
@pytest.mark.parametrize(
    ("found", "called"),
    [
        ({"lost": (ONE,) * 80, "gaps": 3}, set()),
        ({"lost": (ONE,) * EXPECTED}, {"lost"}),
        ({"misrouted": 1}, {"misrouted"}),
        ({"quarantined": 1}, {"quarantined"}),
        ({"lost": (ONE,), "audited": 98}, {"audit disagrees"}),
    ],
)
def test_a_run_that_may_lose_must_be_right_in_all_else(
    contract: Contract, tmp_path: Path, found: dict[str, Any], called: set[str]
) -> None:
    assert wrong(outcome(contract, tmp_path, **found), loses=True) == called


def test_an_unexplained_end_fails_the_run(contract: Contract, tmp_path: Path) -> None:
    whole = outcome(contract, tmp_path)
    crashed = replace(whole, ended=[ChildExit("forwarder-home-1", 1, started=0.0, at=1.5)])
    assert wrong(crashed) == {"ended by themselves"}
    full = InjectedFault("disk-full", "home-1", 1.0, 2.0)
    refused = ChildExit("forwarder-home-1", os.EX_IOERR, started=1.9, at=2.5)
    assert not wrong(replace(whole, struck=[full], ended=[refused]))
    others = [
        replace(refused, started=2.1),
        replace(refused, status=1),
        replace(refused, name="forwarder-home-2"),
        replace(refused, name="worker-ingest"),
    ]
    assert by_themselves([refused, *others], [full]) == others
