"""A story: what people do and what fails, decision by decision. A seed draws it; it can be kept and cut."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Final, Self


@dataclass(frozen=True, slots=True, order=True)
class Decision:
    """At `at_s` seconds `what` happens to `who`; `much` says how long or how much, if it does."""

    at_s: float
    what: str
    who: str = ""
    much: float = 0.0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """`homes` homes, and what is decided; `order` seeds how long each call takes, and so their order."""

    homes: int
    order: int
    decisions: tuple[Decision, ...]

    def without(self, some: Iterable[Decision]) -> Self:
        """The story in which `some` do not happen."""
        gone = set(some)
        return type(self)(self.homes, self.order, tuple(each for each in self.decisions if each not in gone))

    @property
    def json(self) -> str:
        members = {
            "homes": self.homes,
            "order": self.order,
            "decisions": [asdict(each) for each in self.decisions],
        }
        return json.dumps(members, indent=1)

    @classmethod
    def read(cls, text: str) -> Self:
        """The story in a text that `json` made."""
        members = json.loads(text)
        return cls(
            members["homes"], members["order"], tuple(Decision(**each) for each in members["decisions"])
        )


@dataclass(frozen=True, slots=True)
class Size:
    """How much happens in a story."""

    homes: int
    events: int
    faults: int
    lasts_s: float


LIGHT: Final = Size(homes=1, events=20, faults=5, lasts_s=240.0)
BUSY_S: Final = 20.0
"""How long a busy moment is, seconds."""

HEAVY: Final = Size(homes=3, events=300, faults=30, lasts_s=1_200.0)

SENDERS: Final = {
    "org.eventplane.alarm.keyword.v1": "voice-service",
    "org.eventplane.alarm.clinical.v1": "health-service",
    "org.eventplane.health.reading.v1": "health-service",
    "org.eventplane.activity.motion.v1": "activity-service",
    "org.eventplane.climate.reading.v1": "climate-service",
}
DOWN: Final = ("threshold", "message")

PROGRAMS: Final = (
    "router-ingest", "router-urgent", "router-carers", "router-presence-monitor", "router-operations",
    "tap", "ledger", "recorder", "heartbeats", "timers", "presence-reconciler",
    "desired", "answers", "due", "downlink-reconciler",
    "alarm-centre-0", "alarm-centre-1", "care-analytics-0", "family-app-0",
    "care-analytics-1", "family-app-1",
    "subscribers", "subscriptions-api", "operator", "replay",
    "care-analytics-administrator", "family-app-administrator", "carers-administrator",
)  # fmt: skip
SERVICES: Final = ("sqs", "dynamodb", "s3", "iot-data")
SUBSCRIBED: Final = "subscribers-inbox"
QUEUES: Final = (
    "ingest", "urgent", "ledger", "lifecycle", "timers", "work", SUBSCRIBED,
    "device-inbox", "downlink-inbox", "alarm-centre-inbox", "care-analytics-inbox", "family-app-inbox",
)  # fmt: skip
"""Those in which messages come twice, late and in another order."""

READERS: Final = ("alarm-centre", "care-analytics", "family-app")
FUNCTIONS: Final = READERS[1:]
"""Those whose second reader is a function."""

ENDPOINTS: Final = ("https://one.example/events", "https://other.example/events")
ALARMS: Final = "org.eventplane.alarm."
SUBSCRIBABLE: Final = {
    "care-analytics": (("inbox",), (ALARMS, f"{ALARMS}keyword")),
    "family-app": (ENDPOINTS, (ALARMS, f"{ALARMS}keyword", "org.eventplane.activity.")),
    "carers": (ENDPOINTS, (ALARMS, "org.eventplane.health.", "org.eventplane.climate.")),
}
"""Where the subscriptions of a participant lead, and the prefixes of the types that they are for."""

ENDPOINT_FAULTS: Final = (
    "404",
    "410",
    "429 3",
    "429 30",
    "500",
    "503 120",
    "500 2000",
    "400",
    "301",
    "down",
    "slow",
)

AT_HOME: Final = (
    "cut",
    "silent",
    "stall",
    "service-crash",
    "lose-puback",
    "kill",
    "power-cut",
    "broker-stop",
    "disk-full",
    "disk-broken",
    "clock-step",
    "flood",
)
IN_CLOUD: Final = (
    "lose-answer",
    "refuse",
    "die",
    "outage",
    "slow",
    "copy",
    "late",
    "reader-kill",
    "dependency-down",
    "endpoint",
)

FAULTS: Final = AT_HOME + IN_CLOUD

_AT: Final[dict[str, tuple[str, ...]]] = {
    "outage": SERVICES,
    "slow": SERVICES,
    "copy": QUEUES,
    "late": QUEUES,
    "dependency-down": READERS,
}
"""Where a fault of the cloud that lasts for a while can be."""


def draw(seed: int, size: Size) -> Story:
    """The story of a `seed`: each draws its own few kinds of faults and programs, and when they happen."""
    random = Random(seed)
    decisions: list[Decision] = []
    busy = [random.uniform(5.0, size.lasts_s) for _ in range(random.randrange(4))]
    for _ in range(size.events):
        at_s = _moment(random, busy, size)
        home = f"home-{random.randrange(size.homes) + 1}"
        if random.random() < 0.2:
            decisions.append(Decision(at_s, random.choice(DOWN), home, random.randrange(1, 4)))
        else:
            decisions.append(Decision(at_s, "say", home, text=random.choice(sorted(SENDERS))))
    if random.random() < 0.5:
        changes = [round(random.uniform(1.0, 5.0), 2) for _ in range(3)]
        changes += [round(random.uniform(5.0, size.lasts_s), 2) for _ in range(size.events // 5)]
        decisions += [_subscription(random, at_s) for at_s in changes]
        for _ in range(random.randrange(size.faults)):
            at_s = round(random.uniform(5.0, size.lasts_s), 2)
            decisions.append(_fault(random, "endpoint", at_s, size, PROGRAMS))
    for _ in range(random.choice((0, 0, 1, 2))):
        decisions.append(Decision(round(random.uniform(60.0, size.lasts_s + 50.0), 2), "redrive"))
    if random.random() < 0.3:
        at_s = round(random.uniform(60.0, size.lasts_s + 50.0), 2)
        decisions.append(Decision(at_s, "replay", random.choice(READERS), 300.0))
    for _ in range(random.choice((0, 0, 1, 2))):
        at_s = round(random.uniform(5.0, size.lasts_s), 2)
        decisions.append(Decision(at_s, "publish", text=random.choice((ALARMS, f"{ALARMS}keyword", ""))))
    kinds, programs = random.sample(FAULTS, random.randint(1, 6)), random.sample(PROGRAMS, 4)
    for _ in range(size.faults):
        at_s = _moment(random, busy, size)
        decisions.append(_fault(random, random.choice(kinds), at_s, size, programs))
    # What otherwise a reconciler does, late, nothing does.
    modes = Decision(0.0, "no-reconciler", "presence-reconciler"), Decision(0.0, "drill")
    decisions += random.sample(modes, random.randrange(3))
    return Story(size.homes, random.randrange(1 << 30), tuple(sorted(decisions)))


def _moment(random: Random, busy: Sequence[float], size: Size) -> float:
    """Draw when something happens; at a busy moment events and faults meet."""
    if busy and random.random() < 0.7:
        return round(random.choice(busy) + random.uniform(0.0, BUSY_S), 2)
    return round(random.uniform(5.0, size.lasts_s), 2)


def _subscription(random: Random, at_s: float) -> Decision:
    participant = random.choice(sorted(SUBSCRIBABLE))
    places, prefixes = SUBSCRIBABLE[participant]
    place, name = random.choice(places), random.choice(("first", "second"))
    what = random.choice(("put", "put", "post", "delete")) if at_s > 5.0 else "put"
    more = "" if what == "delete" else f" {place} {random.choice(prefixes)}"
    return Decision(at_s, what, participant, text=f"{name}{more}")


def drill(thing: str) -> Iterator[Decision]:
    """What happens to a home when all is well again: each step has to be done as fast as the plane can."""
    for kind in SENDERS:
        yield Decision(10.0, "say", thing, text=kind)
    yield Decision(20.0, "say", thing, text=f"{ALARMS}keyword.v1")
    yield Decision(20.003, "broker-stop", thing, 2.0)
    yield Decision(30.0, "outage", "iot-data", 3.0)
    yield from (Decision(31.0, kind, thing, 1.0) for kind in DOWN)
    yield Decision(45.0, "say", thing, text=f"{ALARMS}keyword.v1")
    yield Decision(45.02, "cut", thing, 2.0)
    yield Decision(60.0, "cut", thing, 120.0)
    yield Decision(70.0, "say", thing, text=f"{ALARMS}keyword.v1")
    yield Decision(70.0, "message", thing, 1.0)
    yield Decision(SILENT_S, "silent", thing, 1.0)
    yield Decision(SILENT_S + 1.0, "message", thing, 1.0)


SILENT_S: Final = 200.0
"""When in a drill the connection goes silent: only the keepalive shows it."""

DRILL_S: Final = 460.0
"""How long a drill takes: the longest batching delay, or the report of the last connection."""


def _fault(random: Random, what: str, at_s: float, size: Size, programs: Sequence[str]) -> Decision:
    home = f"home-{random.randrange(size.homes) + 1}"
    long_s = round(random.choice((0.5, 5.0, 45.0, 200.0)) * random.uniform(0.5, 1.5), 2)
    match what:
        case "lose-puback":
            return Decision(at_s, what, home, random.randint(1, 2))
        case "kill" | "power-cut":
            return Decision(at_s, what, home, random.randint(1, 8))
        case "clock-step":
            return Decision(at_s, what, home, random.choice((-86_400.0, -600.0, -5.0, 5.0, 600.0, 86_400.0)))
        case "flood":
            return Decision(at_s, what, home, random.randint(20, 100))
        case "lose-answer" | "refuse" | "die":
            return Decision(at_s, what, random.choice(programs), random.randint(1, 6))
        case "endpoint":
            return Decision(at_s, what, random.choice(ENDPOINTS), long_s, random.choice(ENDPOINT_FAULTS))
        case "reader-kill":
            # At one of its next steps, or now.
            return Decision(at_s, what, random.choice(READERS), random.randint(0, 6))
        case _:
            return Decision(at_s, what, random.choice(_AT.get(what, (home,))), long_s)
