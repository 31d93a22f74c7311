"""One history: a story told by the real programs, in virtual time, and what became of it."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, cached_property, partial
from itertools import chain
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final

from edge.contract_updates import contract_key
from eventplane.contract import Contract, Downlink, compile_contract, contract_document
from eventplane.device_reports import DEVICE_CONTRACT
from eventplane.envelope import Envelope, write_event
from eventplane.ingest import IngestFrame, parse_frame
from eventplane.names import CONNECTED
from eventplane.resource_names import RECEIPTS_SUFFIX
from eventplane.sqs_binding import RETRIES, to_message
from lab.histories.cloud import BUCKET, PLANE, CloudModel
from lab.histories.engine import Engine
from lab.histories.keys import LOOK_S, Keys
from lab.histories.operators import Operator
from lab.histories.ordered import NightWatch, ordered
from lab.histories.reader import CloudReader, Handled, ReaderFunction
from lab.histories.story import (
    AWAY_S,
    BUSY_S,
    CALLS,
    DEVICES,
    DRILL_S,
    FAULTS,
    FUNCTIONS,
    GIVEN_UP_S,
    OF_KEYS,
    OF_PRESENCE,
    OLD,
    ORDERS_S,
    READERS,
    SENDERS,
    SUBSCRIBABLE,
    TAKEN,
    WATCH,
    Story,
    StoryStep,
    drill,
)
from lab.histories.subscriber import Administrator
from lab.histories.wires import CurrentFaults
from lab.histories.wiring import SETTLES_S, Wiring
from parts.simulate.home import SCRATCH, HomeModel
from parts.simulate.line import CLOUD_DELAY_S, SLOW_BYTES_PER_S
from tests.fakes.sqs import FakeQueue

HEALS_S: Final = 60.0
"""So long after the last decision all faults are over."""

HISTORY_S: Final = 9_000.0
"""So long after that everything has ended, an endpoint asked again after an hour; sooner if nothing waits."""

STATE_KEY: Final = "threshold/home/pulse"
SLOW_S: Final = 1.9
"""The most that a call of a slow service takes longer: less than the functions' read timeout."""

BURST_S: Final = 0.3
"""Between two desired states, or commands, that follow each other."""

LEAST_S: Final = 300.0
"""How long it goes on after healing in any case, for copies that come late."""

ANSWERS_LATE_S: Final = 5.0
"""How much later a drill is in which answers are lost, seconds: a call is repeated."""

MENDS_S: Final = 1_200.0
"""How long a drill in which a program fails takes longer, for what is due after three heartbeats."""

LOOKS_S: Final = 20.0
"""How long it goes on between two looks whether it is over."""

DATA: Final[dict[str, Any]] = {
    "org.eventplane.alarm.keyword.v1": {"keyword": "help"},
    "org.eventplane.health.reading.v1": {"quantity": "heart-rate", "value": 72, "unit": "/min"},
    "org.eventplane.alarm.clinical.v1": {"alert": "pulse"},
    "org.eventplane.activity.motion.v1": {"state": "moved"},
    "org.eventplane.climate.reading.v1": {"quantity": "temperature", "value": 21, "unit": "Cel"},
}


TRUSTING: Final = ("activity-service", "climate-service")
"""The services that wait for the broker's PUBACK only: its lasting session keeps what it has acknowledged."""

HOME: Final = {"spool_capacity_bytes": 64 * 1024 * 1024, "manifest_interval_s": 300.0}
"""The settings of forwarders that are not the defaults."""


@cache
def led_to(contract: Contract, kind: str) -> Contract:
    """Return `contract` with a route for events of `kind` to the call service; with none for ''."""
    if not kind:
        return contract
    document = contract_document(contract)
    document["routes"]["sent-to-the-home"] = {
        "filter": {"exact": {"type": kind}},
        "to": "call-service.inbox",
    }
    return compile_contract(document, "sent")


class History:
    """Runs `story` under `contract`; afterwards its parts say what became of it."""

    def __init__(self, story: Story, contract: Contract) -> None:
        self.story = story
        self.contract = contract = ordered(contract) if story.is_ordered else contract
        self.engine = Engine()
        self.random = Random(story.order)
        self.weather = CurrentFaults(self.engine, self.random)
        things = [f"home-{number + 1}" for number in range(story.homes)]
        self.cloud = CloudModel(self.engine, contract, self.weather, things)
        Wiring(self.cloud).start()
        self.handled = Handled(self.engine)
        self.readers: list[CloudReader | ReaderFunction] = [
            CloudReader(self.cloud, name, self.handled) for name in READERS
        ]
        self.readers.append(CloudReader(self.cloud, "alarm-centre", self.handled, 1))
        self.readers += [ReaderFunction(self.cloud, name, self.handled, 1) for name in FUNCTIONS]
        if story.is_ordered:
            self.readers.append(CloudReader(self.cloud, WATCH, self.handled))
            self.readers.append(ReaderFunction(self.cloud, WATCH, self.handled, 1))
        self.watch = NightWatch(self.cloud)
        self.administrators = {name: Administrator(self.cloud, name) for name in SUBSCRIBABLE}
        self.operator = Operator(self.cloud)
        self.keys: Keys | None = None
        self.said: dict[tuple[str, str], tuple[float, str, str, Envelope]] = {}
        self.faults: Counter[str] = Counter()
        self._numbers: Counter[str] = Counter()
        self.homes: dict[str, HomeModel] = {}
        self.desired: list[tuple[float, str, str, int]] = []
        self.things = things
        self.held: dict[str, Any] = {}
        self.contracts: dict[str, Contract] = {}
        """The last contract that was sent to each home."""
        self.trouble: StoryStep | None = None
        """What fails in the drill, if there is one."""
        self.gives_up = False
        """Whether a queue moves to its dead-letter queue what comes too often."""
        self.healed_s = self.drilled_s = inf
        self.seen: dict[Any, Any] = {}
        """What oracles have read of it, see `oracles.finding.seen_once`."""

    def run(self) -> History:
        """Tell the story to its end."""
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            for thing in self.things:
                cloud, files, draw = self.cloud.iot.broker, Path(folder), self.random.randbytes
                self.homes[thing] = HomeModel(
                    self.engine, thing, self.contract, cloud, files, draw, TRUSTING, HOME
                )
            if any(each.what in OF_KEYS for each in self.story.decisions):
                self.keys = Keys(self.cloud, self.operator, self.homes)
                self.engine.every(LOOK_S, self.keys.look, first_s=LOOK_S)
            for decision in self.story.decisions:
                self.engine.at(decision.at_s, partial(self._do, decision))
            ends_s = max(map(_end_s, self.story.decisions), default=0.0)
            self.healed_s = ends_s + HEALS_S
            self.engine.at(self.healed_s, self._heal)
            self.engine.run(self.healed_s + LEAST_S)
            self._run_until(self._is_over, self.healed_s + HISTORY_S)
            if self.trouble is not None:
                self._run_drill(self.trouble)
            # What a home has just said of itself is on its way.
            self._run_until(lambda: not any(map(_spooled, self.homes.values())), self.engine.now_s + HEALS_S)
            if self.keys is not None:
                self.keys.note_end()
            self.spooled = {thing: _spooled(home) for thing, home in self.homes.items()}
            for thing, home in self.homes.items():
                home.is_frozen = True
                if home.forwarder is not None:
                    spool = home.forwarder.spool
                    self.held[thing] = spool.device_state(Downlink.STATE, STATE_KEY)
                    spool.close()
            # Homes report every few minutes, and the archive's writers wait a minute for company.
            self.ended_ms = self.engine.now_ms
            self.cloud.is_ending = True
            for each in self.cloud.sqs.readers.values():
                each.look_soon(0.0)
            self._run_until(self._is_archived, self.engine.now_s + LEAST_S)
        return self

    @cached_property
    def ledger(self) -> list[dict[str, Any]]:
        """The records of routing decisions that the archive has."""
        objects = self.cloud.s3.buckets[BUCKET].items()
        written = (gzip.decompress(each.body) for key, each in objects if key.startswith("ledger/"))
        return [json.loads(line) for each in written for line in each.splitlines()]

    @cached_property
    def frames(self) -> list[tuple[IngestFrame, list[Envelope]]]:
        """Return the frames that IoT Core took, with the events in them."""
        frames = map(parse_frame, self.cloud.sqs.sent[self.cloud.tap])
        return [(each, [item.event for item in each.items() if item.event]) for each in frames]

    def _run_until(self, is_reached: Callable[[], bool], ends_s: float) -> None:
        while self.engine.now_s < ends_s and not is_reached():
            self.engine.run(self.engine.now_s + LOOKS_S)

    def _is_archived(self) -> bool:
        """Whether no function has anything to read."""
        return not any(self._waiting())

    def _waiting(self) -> Iterator[FakeQueue]:
        """The queues that are not empty, but for timers that did not come yet: they are of the future."""
        read = [self.cloud.sqs.queues[name] for name in self.cloud.sqs.readers]
        read += [self.cloud.queue(f"{each.participant}-inbox") for each in self.readers]
        timers = self.cloud.queue("timers")
        return (each for each in read if any(one.receives or each is not timers for one in each.messages))

    def _run_drill(self, trouble: StoryStep) -> None:
        """Let well-known things happen when all is well and nothing waits, and nothing reconciles."""
        engine = self.engine
        self.drilled_s = began_s = engine.now_s
        self.weather.paused |= {"presence-reconciler", "downlink-reconciler"}
        engine.at(began_s + AWAY_S, partial(self.weather.paused.discard, "downlink-reconciler"))
        back_s = AWAY_S + self.away_s
        if trouble.text:
            moments = {
                "recorder": (AWAY_S, back_s),
                "timers": (back_s + SETTLES_S[CONNECTED],),
            }
            at_s = self.random.choice(moments.get(trouble.who, ORDERS_S[:1]))
            failing = {
                "throttle": StoryStep(at_s, "throttle", "put_item", 6.0),
                "slow": StoryStep(at_s, "slow", "dynamodb", 20.0),
                "part": StoryStep(at_s, "part", "sqs", 6.0),
            }.get(trouble.text)
            if failing is None:
                call = f"{trouble.who} {self.random.choice(CALLS[trouble.who])}"
                failing = replace(trouble, what=trouble.text, who=call, much=self.random.randint(1, 2))
            elif trouble.text == "slow":
                at_s = back_s + SETTLES_S[CONNECTED] - 2.0
            engine.at(began_s + at_s, partial(self._do, failing))
        steps = (drill(thing, self.away_s, trouble.text) for thing in self.things)
        for each in chain.from_iterable(steps):
            engine.at(began_s + each.at_s, partial(self._do, each))
        engine.run(began_s + back_s + DRILL_S + (MENDS_S if trouble.text else 0.0))

    @property
    def trouble_s(self) -> float:
        """The allowed lateness of the drill, seconds: a queue hides what its program did not end."""
        trouble = self.trouble
        if trouble is None or not trouble.text:
            return 0.0
        if trouble.text == "lose-answer":
            return ANSWERS_LATE_S
        # What comes again may find the home away, or not yet known as back.
        size = PLANE.presence.recorder if trouble.who in OF_PRESENCE else PLANE.downlink.reader
        return 2.0 * size.visibility_s

    @property
    def away_s(self) -> float:
        """The absence of homes in the drill, seconds: a report that fails is over by then."""
        is_report = self.trouble is not None and self.trouble.who in OF_PRESENCE
        return 120.0 + (self.trouble_s if is_report else 0.0)

    def _is_over(self) -> bool:
        """Whether nothing waits any more: what follows are heartbeats."""
        receipts = (f"{address.partition('.')[0]}{RECEIPTS_SUFFIX}" for address in self.cloud.receipts)
        windows = [self.cloud.queue(each) for each in ("tap", "ledger", *receipts)]
        if any(
            each not in windows or any(one.receives > 1 for one in each.messages) for each in self._waiting()
        ):
            return False
        homes = self.homes.values()
        if any(map(_spooled, homes)):
            return False
        if (
            self.cloud.unacknowledged()
            or (self.gives_up and self.operator.has_dead_letters)
            or self.operator.busy
            or self.watch.is_busy
            or any(each.is_busy for each in self.administrators.values())
        ):
            return False
        return not any(service.pending for home in homes for service in home.services.values())

    def _do(self, decision: StoryStep) -> None:
        act: Callable[[StoryStep], None] = getattr(self, "_" + decision.what.replace("-", "_"))
        if decision.what in FAULTS:
            self.faults[decision.what] += 1
            self.engine.note(decision.who, f"{decision.what} {decision.much:g}", is_fault=True)
        act(decision)

    def _heal(self) -> None:
        weather = self.weather
        calls = weather.lost, weather.dead, weather.refused
        for those in (weather.down, weather.slow, weather.throttled, *calls):
            those.clear()
        self.cloud.sqs.takes_part = False
        for home in self.homes.values():
            home.uplink.heal()
            home.uplink.go_on()
            home.uplink.loses_answers, home.uplink.delay_s = 0, CLOUD_DELAY_S
            home.uplink.bytes_per_s = inf
            home.inside.heal()
            home.disk.state = "well"
            home.fuse = None
            home.broker.start()
            home.start()
            for service in home.services.values():
                service.is_crashing = False
        for reader in self.readers:
            reader.is_dependency_down = False
            if isinstance(reader, CloudReader):
                reader.fuse = 0
        for endpoint in self.cloud.endpoints.values():
            endpoint.fault = ""

    # What people do.

    def _say(self, decision: StoryStep) -> None:
        self._event(decision.who, decision.text)

    def _event(self, thing: str, kind: str) -> None:
        self._numbers[thing] += 1
        service = SENDERS[kind]
        attributes = {"id": f"{thing}-{self._numbers[thing]}", "source": f"/{thing}/{service}", "type": kind}
        event = write_event(attributes, DATA[kind])
        self.said[event.source, event.id] = self.engine.now_s, thing, service, event
        self.homes[thing].services[service].say(event)

    def _threshold(self, decision: StoryStep) -> None:
        kind, data = "org.eventplane.home.threshold.v1", {"reading": "heart-rate", "high": 120}
        self._burst(decision, partial(self._down, decision, kind, data, statekey=STATE_KEY))

    def _message(self, decision: StoryStep) -> None:
        kind = "org.eventplane.home.message.v1"
        self._burst(decision, partial(self._down, decision, kind, {"text": "Hello"}))

    def _send_contract(self, decision: StoryStep) -> None:
        """Send a home a contract with a route more or, without `text`, its own."""
        self._give_contract(decision, led_to(self.contract, decision.text))

    def _give_contract(self, decision: StoryStep, contract: Contract) -> None:
        data = contract_document(contract)
        self._down(decision, DEVICE_CONTRACT, data, "operations", statekey=contract_key(contract.name))
        self.contracts[decision.who] = contract

    def _burst(self, decision: StoryStep, act: Callable[[], object]) -> None:
        """Let as many follow each other as the decision says."""
        for at in range(int(decision.much)):
            self.engine.after(at * BURST_S, act)

    def _down(self, decision: StoryStep, kind: str, data: Any, sender: str = "carers", **more: str) -> None:
        self._numbers["down"] += 1
        number = self._numbers["down"]
        attributes = {
            "id": f"down-{number}",
            "source": f"/{sender}",
            "type": kind,
            "todevice": decision.who,
            "stateversion": str(number),
            **more,
        }
        event = write_event(attributes, data)
        self.desired.append((self.engine.now_s, decision.who, kind, number))
        self._put_into(self.cloud.outboxes[sender], to_message(event, {}).body)

    def _put_into(self, url: str, body: str) -> None:
        if "sqs" in self.weather.down:
            self.engine.after(2.0, lambda: self._put_into(url, body))
        else:
            self.cloud.sqs.send_message(QueueUrl=url, MessageBody=body)

    def _round(self, decision: StoryStep) -> None:
        self.watch.go_round(int(decision.much))

    def _put(self, decision: StoryStep) -> None:
        self.administrators[decision.who].do(decision)

    _post = _delete = _put

    def _old(self, decision: StoryStep) -> None:
        """0.3.0, which runs beside this version during a deployment, wrote last what is there."""
        self.cloud.dynamodb.strip(decision.who, OLD[decision.who])
        for message in chain.from_iterable(each.messages for each in self.cloud.sqs.queues.values()):
            message.attributes.pop(RETRIES, None)

    def _few_receives(self, decision: StoryStep) -> None:
        """A queue gives up by itself, and an operator looks after what it gave up."""
        queue = self.cloud.queue(decision.who)
        policy = json.dumps({**queue.redrive, "maxReceiveCount": int(decision.much)})
        queue.attributes["RedrivePolicy"] = policy
        self.engine.every(GIVEN_UP_S, self.operator.redrive_queues, first_s=GIVEN_UP_S)
        self.gives_up = True

    def _redrive(self, _decision: StoryStep) -> None:
        self.operator.redrive()

    def _replay(self, decision: StoryStep) -> None:
        self.operator.replay(decision.who, decision.much)

    def _publish(self, decision: StoryStep) -> None:
        self.operator.publish(decision.text)

    def _roll_out(self, decision: StoryStep) -> None:
        """Roll out a contract with a route more in the cloud to one home, for some seconds."""
        prefix, _, end = decision.text.partition(" ")
        give = partial(self._give_contract, decision)
        self.operator.roll_out(prefix, decision.much, give, is_taken=end == TAKEN)

    def _key(self, decision: StoryStep) -> None:
        if self.keys is not None:
            self.keys.do(decision)

    _thief = _fleet = _key

    def _drill(self, decision: StoryStep) -> None:
        self.trouble = decision

    # What fails.

    def _for(self, decision: StoryStep, act: Callable[[], object], undo: Callable[[], object]) -> None:
        act()
        self.engine.after(decision.much, undo)

    def _set(self, decision: StoryStep, thing: object, name: str, fault: object, well: object) -> None:
        self._for(decision, partial(setattr, thing, name, fault), partial(setattr, thing, name, well))

    def _cut(self, decision: StoryStep) -> None:
        line = self.homes[decision.who].uplink
        self._for(decision, line.cut if decision.what == "cut" else line.go_silent, line.heal)

    _silent = _cut

    def _lose_puback(self, decision: StoryStep) -> None:
        self.homes[decision.who].uplink.loses_answers += int(decision.much)

    def _kill(self, decision: StoryStep) -> None:
        home = self.homes[decision.who]
        home.fuse, home.fuse_at = int(decision.much), decision.text

    def _power_cut(self, decision: StoryStep) -> None:
        self.homes[decision.who].kill(power=True)

    def _broker_stop(self, decision: StoryStep) -> None:
        broker = self.homes[decision.who].broker
        self._for(decision, broker.stop, broker.start)

    def _disk_full(self, decision: StoryStep) -> None:
        state = decision.what.removeprefix("disk-")
        self._set(decision, self.homes[decision.who].disk, "state", state, "well")

    _disk_broken = _disk_full

    def _clock_step(self, decision: StoryStep) -> None:
        self.homes[decision.who].wrong_by_s += decision.much

    def _stall(self, decision: StoryStep) -> None:
        self.homes[decision.who].uplink.stall(decision.much)

    def _slow_line(self, decision: StoryStep) -> None:
        line = self.homes[decision.who].uplink
        self._set(decision, line, "delay_s", float(decision.text), CLOUD_DELAY_S)
        self._set(decision, line, "bytes_per_s", SLOW_BYTES_PER_S, inf)

    def _takeover(self, decision: StoryStep) -> None:
        """The forwarder starts anew while the broker takes its last connection for alive."""
        home = self.homes[decision.who]
        home.uplink.go_silent()
        home.uplink.heal()
        home.kill()

    def _service_crash(self, decision: StoryStep) -> None:
        for each in self.homes[decision.who].services.values():
            self._set(decision, each, "is_crashing", True, False)

    def _no_reconciler(self, decision: StoryStep) -> None:
        self.weather.paused.add(decision.who)

    def _flood(self, decision: StoryStep) -> None:
        for _ in range(int(decision.much)):
            self._event(decision.who, "org.eventplane.climate.reading.v1")

    def _lose_answer(self, decision: StoryStep) -> None:
        weather = self.weather
        calls = {"lose-answer": weather.lost, "refuse": weather.refused, "die": weather.dead}
        calls[decision.what][decision.who] = int(decision.much)

    _refuse = _die = _lose_answer

    def _outage(self, decision: StoryStep) -> None:
        """A service is down or, if it is throttled, an operation is refused."""
        those = self.weather.down if decision.what == "outage" else self.weather.throttled
        self._for(decision, partial(those.add, decision.who), partial(those.discard, decision.who))

    _throttle = _outage

    def _part(self, decision: StoryStep) -> None:
        """SQS takes only part of each batch."""
        self._set(decision, self.cloud.sqs, "takes_part", True, False)

    def _slow(self, decision: StoryStep) -> None:
        slow = self.weather.slow
        self._for(decision, lambda: slow.update({decision.who: SLOW_S}), lambda: slow.pop(decision.who, None))

    def _copy(self, decision: StoryStep) -> None:
        """A standard queue, or IoT Core, delivers for a while each message twice, the copy minutes later."""
        copies = self.engine.now_s + BUSY_S, decision.much if decision.much > 1.0 else 0.0
        if decision.who == DEVICES:
            self.cloud.iot.copies = copies
        else:
            self.cloud.sqs.copies[self.cloud.queue(decision.who).name] = copies

    def _late(self, decision: StoryStep) -> None:
        """What waits in a queue is seen later, and in another order."""
        queue = self.cloud.queue(decision.who)
        for each in queue.messages:
            each.visible_ms += round(1_000 * decision.much * self.random.random())
            self.cloud.sqs.changed(queue, each.visible_ms)

    def _endpoint(self, decision: StoryStep) -> None:
        self._set(decision, self.cloud.endpoints[decision.who], "fault", decision.text, "")

    def _reader_kill(self, decision: StoryStep) -> None:
        those = [each for each in self.readers if each.participant == decision.who]
        reader = those[int(decision.much) % len(those)]
        if decision.much and isinstance(reader, CloudReader):
            reader.fuse = int(decision.much)
        else:
            reader.kill()

    def _dependency_down(self, decision: StoryStep) -> None:
        for each in self.readers:
            if each.participant == decision.who:
                self._set(decision, each, "is_dependency_down", True, False)


def _spooled(home: HomeModel) -> int:
    """Return how many deliveries wait in the spool; -1 while no forwarder runs."""
    return -1 if home.forwarder is None else sum(home.forwarder.spool.backlog().values())


def _end_s(decision: StoryStep) -> float:
    """Return when `decision` is over, if healing does not end it: a long outage of what a reader depends on,
    and what is seen late."""
    return decision.at_s + (decision.much if decision.what in ("dependency-down", "late") else 0.0)
