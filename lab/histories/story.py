"""A story: what people do and what fails, decision by decision. A seed draws it; it can be kept and cut."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Final, Self


@dataclass(frozen=True, slots=True, order=True)
class StoryStep:
    """At `at_s` seconds `what` happens to `who`; `much` says how long or how much, if it does."""

    at_s: float
    what: str
    who: str = ""
    much: float = 0.0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """`homes` homes, and what is decided; `order` seeds how long each call takes, and so their order.

    With `is_ordered` the plane has a service with FIFO queues, and an inbox whose reader sorts.
    """

    homes: int
    order: int
    decisions: tuple[StoryStep, ...]
    is_ordered: bool = False

    def without(self, some: Iterable[StoryStep]) -> Self:
        """The story in which `some` do not happen."""
        gone = set(some)
        return replace(self, decisions=tuple(each for each in self.decisions if each not in gone))

    @property
    def json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def read(cls, text: str) -> Self:
        """The story in a text that `json` made."""
        members = json.loads(text)
        return cls(**{**members, "decisions": tuple(StoryStep(**each) for each in members["decisions"])})


@dataclass(frozen=True, slots=True)
class StorySize:
    """The size of a story; with `is_drilled` a drill follows, of 23 events and 8 faults."""

    homes: int
    events: int
    faults: int
    lasts_s: float
    is_drilled: bool = False


LIGHT: Final = StorySize(homes=1, events=20, faults=5, lasts_s=240.0)
BUSY_S: Final = 20.0
"""How long a busy moment is, seconds."""

HEAVY: Final = StorySize(homes=3, events=300, faults=30, lasts_s=1_200.0)
DRILLED: Final = StorySize(homes=1, events=4, faults=2, lasts_s=90.0, is_drilled=True)
"""What happens before a drill is over when it begins: a little of each is enough."""

SENDERS: Final = {
    "org.eventplane.alarm.keyword.v1": "voice-service",
    "org.eventplane.alarm.clinical.v1": "health-service",
    "org.eventplane.health.reading.v1": "health-service",
    "org.eventplane.activity.motion.v1": "activity-service",
    "org.eventplane.climate.reading.v1": "climate-service",
}
DOWN: Final = ("threshold", "message")
LED_AT_HOME: Final = ("org.eventplane.activity.motion.v1", "org.eventplane.health.reading.v1")
"""Types for which a contract that is sent to a home has a route more there."""

TAKEN: Final = "taken"
"""Of a contract that is rolled out: it is in force for all afterwards. Else it is given up."""

SERVICES_ROUTER: Final = "router-services"
"""The function that reads the outboxes of all services."""

AREAS: Final = (
    ("router-ingest", "router-urgent", "tap", "ledger"),
    ("recorder", "heartbeats", "timers", "presence-reconciler", SERVICES_ROUTER),
    (SERVICES_ROUTER, "desired", "answers", "due", "downlink-reconciler"),
    ("alarm-centre-0", "alarm-centre-1", "care-analytics-0", "care-analytics-1", "family-app-0",
     "family-app-1"),
    ("subscribers", "subscriptions-api", "care-analytics-administrator", "family-app-administrator",
     "carers-administrator"),
    ("operator", "replay", SERVICES_ROUTER, "router-ingest"),
)  # fmt: skip
"""The programs that work on one thing: in a story those of one area fail, so that failures meet."""

SERVICES: Final = ("sqs", "dynamodb", "s3", "iot-data")
SUBSCRIBED: Final = "subscribers-inbox"
QUEUES: Final = (
    "ingest", "urgent", "ledger", "lifecycle", "timers", "work", SUBSCRIBED,
    "device-inbox", "downlink-inbox", "alarm-centre-inbox", "care-analytics-inbox", "family-app-inbox",
)  # fmt: skip
"""Those in which messages come twice, late and in another order."""

DEVICES: Final = "devices"
"""Where IoT Core delivers to: it may do so twice, and out of order."""

OLD: Final[Mapping[str, tuple[str, ...]]] = {
    "desired": ("key", "kind", "writer"),
    "presence": ("writer",),
    "claims": ("revision", "writer"),
    "subscriptions": ("revision", "writer"),
}
"""The attributes that items of 0.3.0 lack, by table."""

GIVE_UP: Final = ("ingest", "urgent", "ledger", "lifecycle", "work")
"""Queues of which one may give up by itself."""

GIVEN_UP_S: Final = 60.0
"""How often an operator looks at the dead-letter queues then, seconds."""

WATCH: Final = "night-watch"
"""The service with FIFO queues of a story that is ordered."""
ORDERED_INBOX: Final = "care-analytics"
"""Who sorts in such a story."""
READERS: Final = ("alarm-centre", "care-analytics", "family-app")
FUNCTIONS: Final = READERS[1:]
"""Those whose second reader is a function."""

DOWN_S: Final = 3_600.0
"""How long what a reader depends on may be down without a dead letter, seconds."""

ENDPOINTS: Final = ("https://one.example/events", "https://other.example/events")
ALARMS: Final = "org.eventplane.alarm."
SUBSCRIBABLE: Final = {
    "care-analytics": (("inbox",), (ALARMS, f"{ALARMS}keyword")),
    "family-app": (ENDPOINTS, (ALARMS, f"{ALARMS}keyword", "org.eventplane.activity.")),
    "carers": (ENDPOINTS, (ALARMS, "org.eventplane.health.", "org.eventplane.climate.")),
}
"""Where the subscriptions of a participant lead, and the prefixes of the types that they are for."""

ENDPOINT_FAULTS: Final = (
    "404", "410", "429 3", "429 30", "500", "503 120", "500 2000", "400", "301", "down", "slow",
)  # fmt: skip

AT_HOME: Final = (
    "cut", "silent", "stall", "slow-line", "service-crash", "lose-puback", "kill", "takeover",
    "power-cut", "broker-stop", "disk-full", "disk-broken", "clock-step", "flood",
)  # fmt: skip
STEPS: Final = ("", "commit", "committed", "publish", "acknowledge")
"""Between which steps of the forwarder it is killed; "" for any."""

IN_CLOUD: Final = (
    "lose-answer", "refuse", "die", "outage", "slow", "throttle", "part", "old", "copy", "late",
    "reader-kill", "dependency-down", "endpoint",
)  # fmt: skip

OF_KEYS: Final = ("key", "thief", "fleet")
"""What happens to keys: see `lab.histories.keys`."""

FAULTS: Final = AT_HOME + IN_CLOUD
OF_PROGRAMS: Final = ("lose-answer", "refuse", "die")

_AT: Final[Mapping[str, tuple[str, ...]]] = {
    "outage": SERVICES,
    "slow": SERVICES,
    "throttle": ("put_item", "delete_item", "query", "send_message", "send_message_batch", "publish"),
    "part": ("sqs",),
    "old": tuple(OLD),
    "copy": (*QUEUES, DEVICES),
    "late": QUEUES,
}
"""Where a fault of the cloud that lasts for a while can be: at a service, an operation, or a queue."""


@dataclass(frozen=True, slots=True)
class Focus:
    """The focus of a story: `kinds` of faults, and the `programs` that fail.

    `said` is what happens besides, `at` where faults of a kind are instead of anywhere.
    """

    kinds: tuple[str, ...]
    programs: tuple[str, ...]
    said: tuple[str, ...] = ()
    at: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


FOCUSES: Final = (
    Focus(
        ("cut", "takeover", "part", "throttle", "late", "copy", "slow", *OF_PROGRAMS),
        AREAS[1],
        (*DOWN, f"{ALARMS}keyword.v1"),
        {
            "slow": ("dynamodb",),
            "throttle": ("put_item", "send_message_batch"),
            "copy": ("lifecycle", "timers"),
            "late": ("lifecycle", "timers"),
        },
    ),
    Focus(
        ("cut", "takeover", "outage", "throttle", "copy", *OF_PROGRAMS),
        ("desired", "answers", "due", "recorder"),
        DOWN,
        {"outage": ("iot-data",), "throttle": ("publish", "send_message"), "copy": (DEVICES, "device-inbox")},
    ),
    Focus(
        ("copy", "reader-kill", "dependency-down", "slow", *OF_PROGRAMS),
        AREAS[3],
        (f"{ALARMS}keyword.v1", f"{ALARMS}clinical.v1", "org.eventplane.activity.motion.v1"),
        {"slow": ("dynamodb",), "copy": ("alarm-centre-inbox", "family-app-inbox")},
    ),
    Focus(("slow-line", "stall", "cut", "lose-puback", "takeover", "flood", "kill"), ("urgent",)),
    Focus(("disk-broken", "disk-full", "cut", "broker-stop"), ("urgent",), (f"{ALARMS}keyword.v1", *SENDERS)),
)
"""In half of all stories faults and events meet in one of these."""


def draw(seed: int, size: StorySize) -> Story:
    """The story of a `seed`: each draws its own few kinds of faults and programs, and when they happen."""
    random = Random(seed)
    decisions: list[StoryStep] = []
    focus = _focus(random)
    busy = [random.uniform(5.0, size.lasts_s) for _ in range(random.randrange(bool(focus.said), 4))]
    for _ in range(size.events):
        at_s = _moment(random, busy, size)
        home = f"home-{random.randrange(size.homes) + 1}"
        usual = DOWN if random.random() < 0.2 else sorted(SENDERS)
        said = random.choice(focus.said if focus.said and random.random() < 0.7 else usual)
        if said in DOWN:
            decisions.append(StoryStep(at_s, said, home, random.randrange(1, 4)))
        else:
            decisions.append(StoryStep(at_s, "say", home, text=said))
    endpoints = 0
    if random.random() < 0.5:
        changes = [round(random.uniform(1.0, 5.0), 2) for _ in range(3)]
        changes += [round(random.uniform(5.0, size.lasts_s), 2) for _ in range(size.events // 5)]
        decisions += [_subscription(random, at_s) for at_s in changes]
        endpoints = random.randrange(size.faults)
    decisions += _of_operators(random, size)
    for number in range(size.faults):
        what = "endpoint" if number < endpoints else random.choice(focus.kinds)
        decisions.append(_fault(random, what, _moment(random, busy, size), size, focus))
    # What otherwise the reconciler does, late, nothing does in some stories.
    if random.random() < (0.8 if "presence-reconciler" in focus.programs else 0.3):
        decisions.append(StoryStep(0.0, "no-reconciler", "presence-reconciler"))
    if size.is_drilled:
        program = random.choice((*CALLS, *OF_PRESENCE))
        kinds = (*OF_PROGRAMS, *OF_SERVICES) if program in OF_PRESENCE else OF_PROGRAMS
        decisions.append(StoryStep(0.0, "drill", program, text=random.choice(("", *kinds, *kinds))))
    order = random.randrange(1 << 30)
    if random.random() < 0.2:  # the last draw: what came before is as it was
        decisions.append(_roll_out(random, size))
    return Story(size.homes, order, tuple(sorted(decisions)))


def _roll_out(random: Random, size: StorySize) -> StoryStep:
    """Draw a contract that is rolled out to one home for a time, and then taken or given up."""
    at_s, lasts_s = random.uniform(5.0, size.lasts_s / 2), random.uniform(40.0, size.lasts_s / 2)
    text = f"{random.choice((ALARMS, f'{ALARMS}keyword'))} {random.choice((TAKEN, ''))}"
    home = f"home-{random.randrange(size.homes) + 1}"
    return StoryStep(round(at_s, 2), "roll-out", home, round(lasts_s, 2), text)


def _focus(random: Random) -> Focus:
    """Draw what a story is about: anything, or something where faults and events meet."""
    if random.random() < 0.5:
        kinds = *random.sample(FAULTS, random.randint(1, 5)), random.choice(OF_PROGRAMS)
        return Focus(kinds, random.choice(AREAS))
    focus = random.choice(FOCUSES)
    return replace(focus, kinds=tuple(random.sample(focus.kinds, min(4, len(focus.kinds)))))


def _moment(random: Random, busy: Sequence[float], size: StorySize) -> float:
    """Draw when something happens; at a busy moment events and faults meet."""
    if busy and random.random() < 0.7:
        return round(random.choice(busy) + random.uniform(0.0, BUSY_S), 2)
    return round(random.uniform(5.0, size.lasts_s), 2)


def _of_operators(random: Random, size: StorySize) -> Iterator[StoryStep]:
    """Draw what operators do: redrive, replay, publish, send contracts to homes, and set up queues."""
    for _ in range(random.choice((0, 0, 1, 2))):
        yield StoryStep(round(random.uniform(60.0, size.lasts_s + 50.0), 2), "redrive")
    if random.random() < 0.3:
        at_s = round(random.uniform(60.0, size.lasts_s + 50.0), 2)
        yield StoryStep(at_s, "replay", random.choice(READERS), 300.0)
    for _ in range(random.choice((0, 0, 1, 2))):
        at_s = round(random.uniform(5.0, size.lasts_s), 2)
        yield StoryStep(at_s, "publish", text=random.choice((ALARMS, f"{ALARMS}keyword", "")))
    for _ in range(random.choice((0, 0, 1, 3))):
        at_s, home = round(random.uniform(5.0, size.lasts_s), 2), f"home-{random.randrange(size.homes) + 1}"
        yield StoryStep(at_s, "send-contract", home, text=random.choice((*LED_AT_HOME, "")))
    if random.random() < 0.15:
        yield StoryStep(0.0, "few-receives", random.choice(GIVE_UP), random.randint(1, 3))


def _subscription(random: Random, at_s: float) -> StoryStep:
    participant = random.choice(sorted(SUBSCRIBABLE))
    places, prefixes = SUBSCRIBABLE[participant]
    place, name = random.choice(places), random.choice(("first", "second"))
    what = random.choice(("put", "put", "post", "delete")) if at_s > 5.0 else "put"
    more = "" if what == "delete" else f" {place} {random.choice(prefixes)}"
    return StoryStep(at_s, what, participant, text=f"{name}{more}")


def drill(thing: str, away_s: float, trouble: str) -> Iterator[StoryStep]:
    """Yield the drill of a home when all is well again: each step has to be done as fast as the plane can.

    In the middle it is away for `away_s` seconds. With a `trouble` less happens afterwards.
    """
    yield from (StoryStep(FAILS_S, "dependency-down", each, UNTIL_S - FAILS_S) for each in READERS)
    for kind in (*SENDERS, *SENDERS):
        yield StoryStep(10.0, "say", thing, text=kind)
    yield StoryStep(20.0, "say", thing, text=f"{ALARMS}keyword.v1")
    yield StoryStep(20.003, "broker-stop", thing, 2.0)
    yield StoryStep(NO_WAY_DOWN_S, "outage", "iot-data", WAY_DOWN_S - NO_WAY_DOWN_S)
    yield from (StoryStep(at_s + 0.5, kind, thing, 2.0) for at_s in ORDERS_S for kind in DOWN)
    yield StoryStep(85.0, "say", thing, text=f"{ALARMS}keyword.v1")
    yield StoryStep(85.02, "cut", thing, 2.0)
    yield StoryStep(AWAY_S, "cut", thing, away_s)
    yield StoryStep(AWAY_S + 10.0, "say", thing, text=f"{ALARMS}keyword.v1")
    yield StoryStep(AWAY_S + 10.0, "message", thing, 1.0)
    since_s = AWAY_S + away_s
    if not trouble:
        yield StoryStep(since_s + SILENT_S, "silent", thing, 1.0)
    if trouble == "slow":
        # While the report of its connection is made, it goes and comes.
        yield from (StoryStep(since_s + 58.0 + at_s, "cut", thing, 0.3) for at_s in FLAPS_S)
    yield StoryStep(since_s + SILENT_S + 1.0, "message", thing, 1.0)


OF_SERVICES: Final = ("throttle", "slow", "part")
"""What in a drill may be wrong with all tables or queues for a while, for the sake of presence."""

OF_PRESENCE: Final = ("recorder", "timers")
CALLS: Final[Mapping[str, tuple[str, ...]]] = {
    "recorder": ("put_item", "send_message_batch"),
    "timers": ("put_item", "send_message_batch"),
    "desired": ("put_item", "publish"),
    "answers": ("put_item", "publish"),
    "due": ("put_item", "publish"),
}
"""The programs of which a call of an operation may fail in a drill: they go on without a reconciler."""

FAILS_S: Final = 19.0
UNTIL_S: Final = 27.0
"""When in a drill what the readers depend on is down."""

NO_WAY_DOWN_S: Final = 60.0
WAY_DOWN_S: Final = 72.0
"""From when to when in a drill IoT Core takes nothing for devices."""

AWAY_S: Final = 105.0
"""When in a drill a home goes away; up to then no reconciler of the downlink runs."""

ORDERS_S: Final = (24.0, NO_WAY_DOWN_S)
"""When in a drill something is sent down."""

FLAPS_S: Final = (0.0, 3.5, 7.0, 10.5)
BROKEN: Final = 3
"""How often in a drill a connection is cut or goes silent, unless it flaps."""

SILENT_S: Final = 30.0
"""So long after it is back the connection goes silent: only the keepalive shows it."""

DRILL_S: Final = 350.0
"""How long a drill goes on after a home is back: the longest batching delay, or the report of the last
connection."""


def _fault(random: Random, what: str, at_s: float, size: StorySize, focus: Focus) -> StoryStep:
    home = f"home-{random.randrange(size.homes) + 1}"
    long_s = round(random.choice((0.5, 5.0, 45.0, 200.0)) * random.uniform(0.5, 1.5), 2)
    match what:
        case "lose-puback":
            return StoryStep(at_s, what, home, random.randint(1, 2))
        case "kill":
            return StoryStep(at_s, what, home, random.randint(1, 8), random.choice(STEPS))
        case "slow-line":
            return StoryStep(at_s, what, home, long_s, random.choice(("1", "4", "12")))
        case "clock-step":
            return StoryStep(at_s, what, home, random.choice((-86_400.0, -600.0, -5.0, 5.0, 600.0, 86_400.0)))
        case "flood":
            return StoryStep(at_s, what, home, random.randint(20, 100))
        case _ if what in OF_PROGRAMS:
            most = 20 if what == "refuse" else 6
            return StoryStep(at_s, what, random.choice(focus.programs), random.randint(1, most))
        case "endpoint":
            return StoryStep(at_s, what, random.choice(ENDPOINTS), long_s, random.choice(ENDPOINT_FAULTS))
        case "reader-kill":
            # At one of its next steps, or now.
            return StoryStep(at_s, what, random.choice(READERS), random.randint(0, 6))
        case "dependency-down":
            # An hour with a hundred events that wait takes most of a history's time, and shows no more.
            much = random.choice((long_s, DOWN_S if size.events < HEAVY.events else long_s))
            return StoryStep(at_s, what, random.choice(READERS), much)
        case _:
            places = focus.at.get(what) or _AT.get(what, (home,))
            return StoryStep(at_s, what, random.choice(places), long_s)
