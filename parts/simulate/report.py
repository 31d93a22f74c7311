"""The result of a simulation as a document and as text: each figure with what it rests on."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from math import inf, isnan
from typing import Any, Final

from eventplane.contract import Channel
from eventplane.reasons import Outcome
from eventplane.values import quantile
from eventplane_aws.prices import PRICES, dollars
from operations.text import table
from parts.simulate.cloud import (
    HANDLES_S,
    NORMAL_S,
    URGENT_S,
    WAITING,
    WINDOW_S,
    CloudRecord,
    EventWay,
)
from parts.simulate.line import CLOUD_DELAY_S, HOME_DELAY_S
from parts.simulate.one_home import HomeRecord, Simulation
from parts.simulate.timeline import Note
from parts.simulate.traffic import HOUR_S

FORMAT: Final = 1
MONTH_D: Final = 30

MEASURED: Final = "measured"
MODELLED: Final = "modelled"
ASSUMED: Final = "assumed"
MEANINGS: Final = {
    MEASURED: "counted on the product's own code, which ran: forwarder, spool, packing, the rules of routers",
    MODELLED: "a time or a price that follows from models of lines, brokers, AWS and readers",
    ASSUMED: "a number of the traffic or the weather, or one of those below, that nothing was measured for",
}
"""What a figure can rest on."""

BASIS: Final = {
    "said": (ASSUMED, "events that services said, drawn from the traffic"),
    "unsaid": (ASSUMED, "events that were not said because the device had no power"),
    "stored": (MEASURED, "events that the forwarder stored; of the device itself its own reports"),
    "sent": (MEASURED, "events of which the forwarder had the cloud's acknowledgement"),
    "ended": (MEASURED, "deliveries that ended in the home, and events that routers refuse or lead nowhere"),
    "ended_unread": (
        MODELLED,
        "events that ended in their inbox without being handled, by outcome and reason",
    ),
    "at_sender": (MEASURED, "events that a service or the home's broker still has for the forwarder"),
    "lost": (MEASURED, "events that their sender gave up and no forwarder stored"),
    "waiting": (MEASURED, "events that wait when the simulation ends"),
    "backlog": (MEASURED, "the most events that waited for the cloud on one device"),
    "backlog_bytes": (MEASURED, "their bytes, as text"),
    "unread": (MODELLED, "events of the inbox that no reader has handled when the simulation ends"),
    "due": (MEASURED, "events that the routes led to the inbox, by the contract's rules"),
    "handled": (MODELLED, "events that the inbox's reader handled"),
    "p50_s": (MODELLED, "seconds from saying to handling: the median"),
    "p99_s": (MODELLED, "seconds that one of a hundred exceeds"),
    "most_s": (MODELLED, "the most seconds"),
    "spool_bytes": (MEASURED, "the most bytes of a device's spool, at the points of the curve"),
    "usd": (
        MODELLED,
        "list prices; an upper bound: each publish and each delivery has requests of its own",
    ),
}
"""What each figure rests on, and what it is."""

_BENCH: Final = "make bench-cloud, in the emulated cloud"

ASSUMPTIONS: Final = (
    ("from IoT Core to an urgent inbox", f"{URGENT_S[0]:g} s, {URGENT_S[1]:g} s of one in 100", MEASURED,
     _BENCH),
    ("from IoT Core to another inbox", f"{NORMAL_S[0]:g} s, {NORMAL_S[1]:g} s of one in 100", MEASURED,
     _BENCH),
    ("batching window of what is not urgent", f"up to {WINDOW_S:g} s more", MEASURED,
     "stacks/environments.toml"),
    ("a reader handles an event", f"{HANDLES_S:g} s, one at a time", ASSUMED, ""),
    ("the line to the cloud, each way", f"{CLOUD_DELAY_S:g} s", ASSUMED, ""),
    ("the home's network, each way", f"{HOME_DELAY_S:g} s", ASSUMED, ""),
    ("an invocation of a router", "35 ms at 512 MiB", MEASURED, _BENCH),
    ("prices", "list prices of us-east-1", MEASURED, "eventplane_aws/prices.toml"),
)  # fmt: skip
"""The numbers of the models: what, how much, what it rests on, and where from."""

_GB_S: Final = 0.035 * 0.5
"""Of an invocation of a router: see `ASSUMPTIONS`."""

_ACTIONS: Final = 2
"""Of the ingest rule: the router's queue and the tap's."""

PUBLISH: Final = {"sqs_request": 5.0, "lambda_request": 1.0, "lambda_gb_s": _GB_S}
"""Units of a publish besides its rule: into two queues, out of the router's, and into the ledger's."""

DELIVERY: Final = {"sqs_request": 3.0, "dynamodb_write": 2.0}
"""Units of a delivery: into the inbox, out of it by two requests, and the filter's claim and its end."""


def document(plan: Simulation, homes: Sequence[HomeRecord], cloud: CloudRecord) -> dict[str, Any]:
    """Return the result of a simulation as JSON; the same for the same inputs and seed."""
    sent = _sent(homes)
    outboxes = [_outbox(each, homes, cloud, sent[each]) for each in _names(homes)]
    inboxes = [each for each in _inboxes(plan, homes, cloud) if each["due"]]
    return {
        "format": FORMAT,
        "contract": {"name": plan.contract.name, "version": plan.contract.version},
        "homes": len(homes),
        "days": plan.days,
        "seed": plan.seed,
        "weather": {
            "name": plan.weather.name,
            "description": plan.weather.description,
            "happens": [
                {"what": each.what, "hours": round(_hours(plan, homes, each.what), 2), "source": each.source}
                for each in plan.weather.happens
            ],
        },
        "traffic": [
            {"type": each.type, "sender": each.sender, "per_day": each.per_day} for each in plan.traffic
        ],
        "alarms": _alarms(homes, cloud),
        "outboxes": outboxes,
        "inboxes": inboxes,
        "devices": _devices(plan, homes),
        "usd": _month_usd(plan, homes, outboxes, inboxes),
        "basis": {name: {"basis": basis, "meaning": meaning} for name, (basis, meaning) in BASIS.items()},
        "meanings": MEANINGS,
        "assumptions": [
            dict(zip(("what", "value", "basis", "source"), each, strict=True)) for each in ASSUMPTIONS
        ],
        "way": _way(plan, homes, cloud),
    }


def _names(homes: Sequence[HomeRecord]) -> list[str]:
    return sorted({name for each in homes for name in (*each.sent, *each.taken)})


def _sent(homes: Sequence[HomeRecord]) -> Counter[str]:
    """Return how many events IoT Core accepted, by outbox."""
    sent: Counter[str] = Counter()
    for home in homes:
        for index, number in Counter(home.decided).items():
            sent[home.decisions[index].outbox] += number
    return sent


def _outbox(name: str, homes: Sequence[HomeRecord], cloud: CloudRecord, sent: int) -> dict[str, Any]:
    ended: Counter[tuple[str, str]] = Counter()
    for home in homes:
        for (outbox, _, outcome, reason), number in home.ended.items():
            ended[outcome, reason] += number if outbox == name else 0
        for (channel, reason), number in home.letters.items():
            ended[Outcome.DEAD_LETTERED, reason] += number if channel == name else 0
    for (outbox, outcome, reason), number in cloud.refused.items():
        ended[outcome, reason] += number if outbox == name else 0
    publishes = sum(each.frames[name] for each in homes if name in each.frames)
    curves = [each.curves[name] for each in homes if name in each.curves]
    rule = PRICES["iot_rule"] + _ACTIONS * PRICES["iot_action"]
    return {
        "channel": name,
        "said": sum(each.sent[name] for each in homes),
        "stored": sum(each.taken[name] for each in homes),
        "sent": sent,
        "ended": _ended(ended),
        "at_sender": sum(each.at_sender[name] for each in homes),
        "lost": sum(each.lost[name] for each in homes),
        "waiting": sum(each.waiting[name] for each in homes),
        "backlog": round(max((max(each.events) for each in curves), default=0.0)),
        "backlog_bytes": round(max((max(each.bytes) for each in curves), default=0.0)),
        "usd": _rounded(publishes * (rule + dollars(PUBLISH))),
        "curve": [round(max(points)) for points in zip(*(each.events for each in curves), strict=True)],
    }


def _inboxes(plan: Simulation, homes: Sequence[HomeRecord], cloud: CloudRecord) -> Iterable[dict[str, Any]]:
    at_home = sorted({name for each in homes for name in each.latencies})
    for name in at_home:
        latencies = array("d", sorted(one for each in homes for one in each.latencies[name]))
        ended: Counter[tuple[str, str]] = Counter()
        for home in homes:
            for (_, destination, outcome, reason), number in home.ended.items():
                ended[outcome, reason] += number if destination == name else 0
        due = sum(each.due[name] for each in homes)
        waiting = max(0, due - len(latencies) - sum(ended.values()))
        yield _inbox(name, "home", due, latencies, ended, waiting, 0.0)
    for name, each in sorted(cloud.inboxes.items()):
        packed = _packed(plan.contract.channel(name), homes)
        usd = each.due * dollars(DELIVERY) / packed
        latencies = array("d", sorted(each.latencies))
        yield _inbox(name, "cloud", each.due, latencies, each.ended, each.waiting, usd)


def _inbox(
    name: str,
    where: str,
    due: int,
    latencies: Sequence[float],
    ended: Counter[tuple[str, str]],
    waiting: int,
    usd: float,
) -> dict[str, Any]:
    return {
        "channel": name,
        "where": where,
        "due": due,
        "handled": len(latencies),
        **_quantiles(latencies),
        "ended_unread": _ended(ended),
        "unread": waiting,
        "usd": _rounded(usd),
        "shares": [round(quantile(latencies, share / 100), 3) for share in range(101)] if latencies else [],
    }


def _packed(channel: Channel, homes: Sequence[HomeRecord]) -> float:
    """Return how many events a message of an inbox carries in the mean: at most those of a publish."""
    publishes = sum(each.units["urgent"] + each.units["ordinary"] for each in homes) or 1.0
    events = sum(len(each.accepted) for each in homes) / publishes
    return max(1.0, min(float(channel.events_per_message), events))


def _alarms(homes: Sequence[HomeRecord], cloud: CloudRecord) -> dict[str, Any]:
    inboxes: list[dict[str, Any]] = []
    for name in sorted({each for home in homes for each in home.alarms_due}):
        took = sorted(one for each in homes for one in each.alarm_latencies.get(name, ()))
        due = sum(each.alarms_due[name] for each in homes)
        inboxes.append({"channel": name, "due": due, "handled": len(took), "lost": 0, **_quantiles(took)})
    for name, each in sorted(cloud.inboxes.items()):
        if due := sum(each.urgent.values()):
            handled = each.urgent[Outcome.DELIVERED]
            lost = due - handled - each.urgent[WAITING]
            row = {"channel": name, "due": due, "handled": handled, "lost": lost}
            inboxes.append({**row, **_quantiles(sorted(each.urgent_latencies))})
    lost = cloud.urgent_lost + sum(each.alarms_lost for each in homes)
    lost += sum(each["lost"] for each in inboxes)
    return {"said": sum(each.alarms_said for each in homes), "lost": lost, "inboxes": inboxes}


def _devices(plan: Simulation, homes: Sequence[HomeRecord]) -> dict[str, Any]:
    used = [[0.0 if isnan(one) else one for one in each.used] for each in homes]
    return {
        "said": sum(sum(each.sent.values()) for each in homes),
        "unsaid": sum(each.unsaid for each in homes),
        "publishes": sum(round(each.units["urgent"] + each.units["ordinary"]) for each in homes),
        "copies": sum(each.copies for each in homes),
        "connected_percent": _rounded(
            100 * sum(each.units["iot_minute"] for each in homes) * 60 / (plan.ends_s * len(homes))
        ),
        "spool_bytes": round(max((max(each, default=0.0) for each in used), default=0.0)),
        "spool_curve": [round(max(points)) for points in zip(*used, strict=True)],
        "point_h": _rounded(plan.bucket_s / HOUR_S),
    }


def _month_usd(
    plan: Simulation, homes: Sequence[HomeRecord], *rows: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """Return what the simulated time cost, and a home a month."""
    connected = sum(each.units["iot_minute"] for each in homes) * PRICES["iot_minute"]
    total = connected + sum(each["usd"] for those in rows for each in those)
    return {
        "connections": _rounded(connected),
        "total": _rounded(total),
        "home_month": _rounded(total / len(homes) / plan.days * MONTH_D),
    }


def _hours(plan: Simulation, homes: Sequence[HomeRecord], what: str) -> float:
    """Return for how many hours something happened: in the mean home, or in the cloud."""
    cloud = plan.weather.when(what, plan.seed, "cloud", plan.ends_s)
    at_home = [each.weather.get(what) for each in homes]
    those = [each for each in at_home if each is not None] or [cloud]
    return (
        sum(min(until, plan.ends_s) - since for each in those for since, until in each) / HOUR_S / len(those)
    )


def _way(plan: Simulation, homes: Sequence[HomeRecord], cloud: CloudRecord) -> dict[str, Any] | None:
    """Return the way of the alarm that fared worst: one that never arrived, or the slowest."""
    ways = [(each.rank, name) for name, each in cloud.inboxes.items() if each.worst]
    if not ways:
        return None
    way = cloud.inboxes[max(ways)[1]].worst
    assert way is not None  # noqa: S101 - chosen for it
    home = homes[way.home]
    notes = sorted(_notes(plan, home, way), key=lambda each: each.at_s)
    return {
        "home": home.thing,
        "id": f"e{home.numbers[way.row]}",
        "type": home.decisions[home.decided[way.row]].type,
        "inbox": way.inbox,
        "end": str(way.end),
        "latency_s": None if way.latency_s == inf else round(way.latency_s, 3),
        "notes": [asdict(each) for each in notes],
    }


def _notes(plan: Simulation, home: HomeRecord, way: EventWay) -> Iterable[Note]:
    said_s, end_s = home.said[way.row], way.end_s
    outbox = home.decisions[home.decided[way.row]].outbox
    yield Note(round(said_s, 3), "service", f"{outbox.partition('.')[0]} says it")
    if not isnan(stored_s := home.stored[way.row]):
        yield Note(round(stored_s, 3), "forwarder", "the spool has it")
    yield Note(round(home.accepted[way.row], 3), "IoT Core", "accepts it")
    yield Note(round(way.routed_s, 3), "router", f"routes it to {way.inbox}")
    if way.failed_s < inf:
        text = f"fails for the first time, of {way.attempts} attempts"
        yield Note(round(way.failed_s, 3), "reader", text, is_fault=True)
    is_done = way.end == Outcome.DELIVERED
    yield Note(round(end_s, 3), "reader", "handles it" if is_done else f"{way.end}", is_fault=not is_done)
    windows = {**home.weather}
    for what in ("reader_fails", "reader_stops"):
        windows[what] = plan.weather.when(what, plan.seed, "cloud", plan.ends_s)
    for what, those in windows.items():
        lane = "reader" if what.startswith("reader") else "weather"
        for since_s, until_s in those:
            if since_s <= end_s and until_s >= said_s:
                yield Note(round(since_s, 3), lane, f"{what} begins", is_fault=True)
                if until_s <= end_s:
                    yield Note(round(until_s, 3), lane, f"{what} ends")


def _ended(counts: Counter[tuple[str, str]]) -> list[dict[str, Any]]:
    found = ((str(outcome), str(reason), number) for (outcome, reason), number in counts.items() if number)
    return [
        {"outcome": outcome, "reason": reason, "number": number} for outcome, reason, number in sorted(found)
    ]


def _quantiles(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"p50_s": None, "p99_s": None, "most_s": None}
    found = {"p50_s": quantile(values, 0.5), "p99_s": quantile(values, 0.99), "most_s": values[-1]}
    return {name: round(each, 3) for name, each in found.items()}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


# As text.


def seconds(value: float | None) -> str:
    """Return seconds in the largest unit of which there is one; a dash for None."""
    if value is None:
        return "-"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"


def ends(row: Mapping[str, Any]) -> str:
    """Return how deliveries ended besides, in words; a dash where none did."""
    found = row.get("ended", row.get("ended_unread", ()))
    return ", ".join(f"{each['number']:,} {each['outcome']} ({each['reason']})" for each in found) or "-"


def headline(found: Mapping[str, Any]) -> str:
    """Return what became of alarms, in a sentence for each inbox."""
    alarms = found["alarms"]
    if not alarms["said"]:
        return "no alarm was said: nothing in the traffic is urgent by the contract"
    lines = [
        f"{alarms['said']:,} alarms were said ({ASSUMED}); {alarms['lost']:,} deliveries of them are lost "
        f"({MEASURED} in homes, {MODELLED} in the cloud)"
    ]
    lines += [
        f"{each['channel']}: {each['handled']:,} of {each['due']:,} handled; "
        f"median {seconds(each['p50_s'])}, p99 {seconds(each['p99_s'])}, "
        f"slowest {seconds(each['most_s'])} ({MODELLED})"
        for each in alarms["inboxes"]
    ]
    if not alarms["inboxes"]:
        lines.append("no route leads an alarm to any inbox, or none got so far")
    return "\n".join(lines)


OUTBOX_COLUMNS: Final = (
    "said", "stored", "sent", "at_sender", "lost", "waiting", "backlog", "backlog_bytes", "usd",
)  # fmt: skip
INBOX_COLUMNS: Final = ("due", "handled", "p50_s", "p99_s", "most_s", "unread", "usd")


def cell(row: Mapping[str, Any], name: str) -> str:
    """Return a figure of a channel for people."""
    value = row[name]
    if name.endswith("_s"):
        return seconds(value)
    return f"{value:.2g}" if name == "usd" else f"{value:,}"


def text(found: Mapping[str, Any]) -> str:
    """Return the result for a terminal."""
    blocks = [
        f"{found['contract']['name']}, version {found['contract']['version']}: {found['homes']} homes, "
        f"{found['days']:g} days, weather {found['weather']['name']}, seed {found['seed']}",
        headline(found),
    ]
    for title, names in (("outboxes", OUTBOX_COLUMNS), ("inboxes", INBOX_COLUMNS)):
        otherwise = BASIS["ended" if title == "outboxes" else "ended_unread"][0]
        head = [title.upper(), *(f"{each} ({BASIS[each][0]})" for each in names), f"ended ({otherwise})"]
        rows = [[row["channel"], *(cell(row, each) for each in names), ends(row)] for row in found[title]]
        blocks.append(table(head, rows) if rows else f"no {title} had an event")
    devices, usd = found["devices"], found["usd"]
    blocks.append(
        f"devices: spool up to {devices['spool_bytes']:,} bytes (measured), "
        f"{devices['publishes']:,} publishes (measured), "
        f"connected {devices['connected_percent']:g} % of the time (modelled), "
        f"{devices['unsaid']:,} events not said for want of power (assumed)\n"
        f"cost (modelled): {usd['home_month']:g} USD a home and month"
    )
    return "\n\n".join(blocks)
