"""The verdict of a run, and its figures: the counters of both ends against each other and the audit."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any, Final

from eventplane.values import quantile
from lab.benchmarks.results import Figure
from lab.chaos.counters import delays, delays_during, missing, out_of_order, recoveries, unexcused
from lab.chaos.faults import InjectedFault
from lab.chaos.load import ALARMS, GREETING, KEYWORD, MOTION, READINGS, SERVICES
from lab.chaos.outages import MOST_COPIES, NOTES, RECOVERY_S, Outages, judge_outages
from lab.chaos.run import RunResult, per_hour
from lab.demo.summary import numbers_missing, summarise
from lab.oracle import Key
from lab.process import ChildExit

_COUNTED: Final = ("reordered",)
"""Faults reorder (lab/chaos/explanation.md, "Out of order"): it is counted, and does not fail the run."""

_LEAST_ALARMS: Final = 20
"""Fewest alarms whose delays are published. Ours: of fewer, median and percentile are chance."""

_LOSSES: Final = ("lost", "ended otherwise", "numbers missing")

_LEAST_RECEIVED: Final = 0.1
"""Share that a run which may lose must receive. Ours: less than a tenth means a broken set-up."""


def summary(outcome: RunResult, run: dict[str, Any], *, loses: bool = False) -> dict[str, Any]:
    """Return the run's document: the demo's, with deliveries that were given up and that came out of order.

    `loses`: the run measures losses.
    """
    late = {
        service: out_of_order(outcome.sent.events, arrivals.first)
        for service, arrivals in outcome.arrivals.items()
    }
    outages = _outages(outcome)
    return {
        **summarise(
            run={**run, "cloud": outcome.cloud, "contract_version": outcome.contract_version},
            sent=outcome.sent.counts(),
            verdicts=outcome.verdicts,
            faults=[
                {"kind": each.kind, "home": each.home, "seconds": round(each.ended - each.began, 2)}
                for each in outcome.struck
            ],
            dead_lettered=outcome.dead_letters,
            audit=outcome.audit,
            wall_seconds=outcome.send_s + outcome.drain_s,
            otherwise_wrong={
                "ended by themselves": len(by_themselves(outcome.ended, outcome.struck)),
                "out of order where declared": sum(late[each] for each in outcome.ordered),
                **(outages.wrong if outages else {}),
            },
            gave_up_waiting_for=outcome.gave_up_waiting_for,
            allowed={*_COUNTED, *(_LOSSES if _may_lose(outcome, loses=loses) else ())},
        ),
        "ended": [{"process": each.name, "status": each.status} for each in outcome.ended],
        "given_up": outcome.given_up.total(),
        "sent_again": outcome.sent_again,
        "not_stored": dict(outcome.not_stored),
        "out_of_order": late,
        **({"outages": outages.rows, "alarms_not_evaluated": outages.unread} if outages else {}),
    }


def _outages(outcome: RunResult) -> Outages | None:
    if outcome.watched is None:
        return None
    return judge_outages(
        outcome.struck,
        outcome.watched,
        _sent(outcome, KEYWORD),
        outcome.arrivals[ALARMS].first,
        [each.again for each in outcome.arrivals.values()],
    )


def _may_lose(outcome: RunResult, *, loses: bool) -> bool:
    """Whether the losses are what the run measures, or no more than what devices gave up, home by home.

    A device gives up reports of its own too, which are not expected, so its numbers are compared as well. The
    audit reports other losses.
    """
    if loses:
        expected = sum(verdict.expected for verdict in outcome.verdicts)
        return sum(verdict.delivered for verdict in outcome.verdicts) >= _LEAST_RECEIVED * expected
    return (
        not unexcused(missing(outcome.verdicts), outcome.given_up)
        and numbers_missing(outcome.audit) == outcome.given_up.total()
    )


def figures(outcome: RunResult, document: dict[str, Any], *, loses: bool) -> list[Figure]:
    """Return the figures of a run; if it `loses` on purpose, losses have no aim."""
    zero = None if loses else 0.0
    lost = unexcused(missing(outcome.verdicts), outcome.given_up)
    numbers = document["audit_irregular"]["numbers missing"] - document["given_up"]
    alone = by_themselves(outcome.ended, outcome.struck)
    sent = document["events_sent"]
    expected = sum(verdict.expected for verdict in outcome.verdicts)
    disagreement = sum(
        abs(
            verdict.delivered
            + len(verdict.unexpected)
            + verdict.reports
            - document["audited"].get(verdict.service, 0)
        )
        for verdict in outcome.verdicts
        if verdict.service in outcome.arrivals
    )
    return [
        Figure("faults", len(outcome.struck), "faults"),
        Figure("sent", sent, "events", note=f"{document['malformed_sent']} malformed messages beside them"),
        Figure("expected", expected, "deliveries", note="events, dead letters and starts, of all inboxes"),
        Figure("received", sum(each.delivered for each in outcome.verdicts), "deliveries"),
        Figure("ended_by_themselves", len(alone), "ends", 0.0, note="that no fault explains"),
        Figure("ended_by_faults", len(outcome.ended) - len(alone), "ends", note="started again after 5 s"),
        Figure("lost", lost, "events", zero, note="expected, not received, and not given up"),
        Figure("given_up", document["given_up"], "events", note="for alarms on a full disk, and reported"),
        Figure("unexpected", document["unexpected"], "events", 0.0, note="received and not expected"),
        Figure("duplicated", document["duplicates"], "deliveries", note="received again"),
        Figure("sent_again", outcome.sent_again, "events", note="by devices, which the cloud had accepted"),
        *_not_stored(outcome),
        Figure("out_of_order", sum(document["out_of_order"].values()), "deliveries", note="first arrivals"),
        *_order_declared(outcome, document),
        Figure("audit_lost", document["audit_lost"], "events", 0.0, note="accepted and not delivered"),
        Figure("audit_disagrees", disagreement, "deliveries", 0.0, note="the audit against receivers"),
        Figure("numbers_missing", numbers, "events", zero, note="of the device's numbers"),
        Figure("send_rate", sent / outcome.send_s, "events/s", note="while the homes sent, outages included"),
        Figure("drain", outcome.drain_s, "s", note="from the last sending until nothing moved any more"),
        Figure("machine_load", os.getloadavg()[1], "processes", note=f"5 min; {os.cpu_count()} cores"),
        *_urgent(outcome),
        *_of_outages(outcome),
        *_recovered(outcome),
        *_grown(outcome),
    ]


def _not_stored(outcome: RunResult) -> Iterator[Figure]:
    """Yield what devices gave up on the way to the cloud, of events only in memory."""
    for reason, count in sorted(outcome.not_stored.items()):
        yield Figure(f"given_up_{reason}", count, "events", note="of those only in memory, and reported")


def _order_declared(outcome: RunResult, document: dict[str, Any]) -> Iterator[Figure]:
    """Yield what came out of order although the contract declares order."""
    if outcome.ordered:
        late = sum(document["out_of_order"][each] for each in outcome.ordered)
        note = f"first arrivals, in the inboxes of {', '.join(sorted(outcome.ordered))}"
        yield Figure("out_of_order_where_declared", late, "deliveries", 0.0, note=note)


def _urgent(outcome: RunResult) -> Iterator[Figure]:
    """Yield the delays of alarms."""
    sent = _sent(outcome, KEYWORD)
    ways = {"cloud": outcome.arrivals[ALARMS].first, "home": outcome.called}
    for way, arrived in ways.items():
        told = "at the alarm centre" if way == "cloud" else "call placed in the home"
        for when, values in {
            "all": sorted(delays(sent, arrived)),
            "faults": sorted(delays_during(outcome.struck, sent, arrived)),
        }.items():
            note = f"{len(values)} alarms, {told}; " + (
                "the whole run" if when == "all" else "sent during a fault"
            )
            if len(values) >= _LEAST_ALARMS:
                yield Figure(f"urgent_{way}_{when}_p50", 1_000 * median(values), "ms", note=note)
                yield Figure(f"urgent_{way}_{when}_p99", 1_000 * quantile(values, 0.99), "ms", note=note)
                yield Figure(f"urgent_{way}_{when}_max", 1_000 * max(values), "ms", note=note)


def _of_outages(outcome: RunResult) -> Iterator[Figure]:
    outages = _outages(outcome)
    if outages is None:
        return
    rows = outages.rows
    for when in ("during", "after"):
        for name in ("p99_ms", "max_ms"):
            slowest = max(rows, key=lambda row: row[f"urgent_{when}"][name] or 0)
            value = slowest[f"urgent_{when}"][name] or 0
            note = f"alarms sent {when} an outage; the worst outage: {slowest['fault']}"
            yield Figure(f"urgent_{when}_{name.removesuffix('_ms')}", value, "ms", note=note)
    latest = max(rows, key=lambda row: row["urgent_latest_s"])
    note = f"from an outage's end to the last alarm that waited for it; the worst: {latest['fault']}"
    yield Figure("urgent_latest", latest["urgent_latest_s"], "s", RECOVERY_S, note=note)
    yield Figure("copies", outages.copies, "copies", float(MOST_COPIES), note="of an event in an inbox")
    for name, value in outages.wrong.items():
        yield Figure(name.replace(" ", "_"), value, "", 0.0, note=NOTES[name])


def _recovered(outcome: RunResult) -> Iterator[Figure]:
    found: dict[str, list[float]] = defaultdict(list)
    every = recoveries(outcome.struck, _sent(outcome, MOTION), outcome.arrivals[READINGS].first)
    for each in every:
        found[each.kind].append(each.seconds)
    for kind, seconds in sorted(found.items()):
        note = f"until the oldest waiting event came; worst of {len(seconds)}, median {median(seconds):.3g} s"
        yield Figure(f"recovery_{kind}", max(seconds), "s", note=note)


def _grown(outcome: RunResult) -> Iterator[Figure]:
    if outcome.samples:
        note = f"{len(outcome.samples)} samples, one a second; the second half's line"
        yield Figure("rss_max", max(each.rss_mib for each in outcome.samples), "MiB", note="of a forwarder")
        yield Figure("rss_slope", per_hour(outcome.samples, 1), "MiB/h", note=note)
        yield Figure("spool_max", max(each.spool_mib for each in outcome.samples), "MiB", note="its files")
        yield Figure("spool_slope", per_hour(outcome.samples, 2), "MiB/h", note=note)


def _sent(outcome: RunResult, type: str) -> dict[Key, float]:
    return {
        key: at
        for key, at in outcome.sent.at.items()
        if key[0].endswith(f"/{SERVICES[type]}") and key[1] != str(GREETING)
    }


_FORESEEN: Final = {"disk-full": os.EX_IOERR}
"""The status with which a forwarder may end that starts during such a fault: it cannot open its spool."""


def by_themselves(ends: Iterable[ChildExit], struck: Sequence[InjectedFault]) -> list[ChildExit]:
    """Return the ends that no fault of `struck` explains."""
    return [end for end in ends if not any(_explains(fault, end) for fault in struck)]


def _explains(fault: InjectedFault, end: ChildExit) -> bool:
    return (
        _FORESEEN.get(fault.kind) == end.status
        and end.name == f"forwarder-{fault.home}"
        and fault.began <= end.at
        and end.started <= fault.ended
    )
