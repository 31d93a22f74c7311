"""One history: a story told by the real programs, in virtual time, and what became of it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import chain
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final

from eventplane.contract import Contract, Downlink
from eventplane.envelope import Envelope, write_event
from eventplane.sqs_binding import to_message
from local.histories.cloud import Cloud
from local.histories.engine import Engine
from local.histories.home import Home
from local.histories.operators import Operator
from local.histories.reader import CloudReader, Handled, ReaderFunction
from local.histories.story import (
    DRILL_S,
    FAULTS,
    FUNCTIONS,
    READERS,
    SENDERS,
    SUBSCRIBABLE,
    Decision,
    Story,
    drill,
)
from local.histories.subscriber import Administrator
from local.histories.wires import Weather
from local.histories.wiring import Wiring

HEALS_S: Final = 60.0
"""So long after the last decision all faults are over."""

SETTLES_S: Final = 9_000.0
"""So long after that everything has ended, an endpoint asked again after an hour; sooner if nothing waits."""

STATE_KEY: Final = "threshold/home/pulse"
BURST_S: Final = 0.3
"""Between two desired states, or commands, that follow each other."""

LEAST_S: Final = 300.0
"""How long it goes on after healing in any case, for copies that come late, and between two looks."""

SCRATCH: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - in memory, a folder of its own in it

DATA: Final[dict[str, Any]] = {
    "org.eventplane.alarm.keyword.v1": {"keyword": "help"},
    "org.eventplane.health.reading.v1": {"quantity": "heart-rate", "value": 72, "unit": "/min"},
    "org.eventplane.alarm.clinical.v1": {"alert": "pulse"},
    "org.eventplane.activity.motion.v1": {"state": "moved"},
    "org.eventplane.climate.reading.v1": {"quantity": "temperature", "value": 21, "unit": "Cel"},
}


class History:
    """Runs `story` under `contract`; afterwards its parts say what became of it."""

    def __init__(self, story: Story, contract: Contract) -> None:
        self.story = story
        self.contract = contract
        self.engine = Engine()
        self.random = Random(story.order)
        self.weather = Weather(self.engine, self.random)
        things = [f"home-{number + 1}" for number in range(story.homes)]
        self.cloud = Cloud(self.engine, contract, self.weather, things)
        Wiring(self.cloud).start()
        self.handled = Handled(self.engine)
        self.readers: list[CloudReader | ReaderFunction] = [
            CloudReader(self.cloud, name, self.handled) for name in READERS
        ]
        self.readers.append(CloudReader(self.cloud, "alarm-centre", self.handled, 1))
        self.readers += [ReaderFunction(self.cloud, name, self.handled, 1) for name in FUNCTIONS]
        self.administrators = {name: Administrator(self.cloud, name) for name in SUBSCRIBABLE}
        self.operator = Operator(self.cloud)
        self.said: dict[tuple[str, str], tuple[float, str, str, Envelope]] = {}
        self.faults: Counter[str] = Counter()
        self._numbers: Counter[str] = Counter()
        self.homes: dict[str, Home] = {}
        self.desired: list[tuple[float, str, str, int]] = []
        self.things = things
        self.held: dict[str, Any] = {}
        self.is_drilled = False
        self.healed_s = self.drilled_s = inf

    def run(self) -> History:
        """Tell the story to its end."""
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            for thing in self.things:
                self.homes[thing] = Home(
                    self.engine, thing, self.contract, self.cloud.iot.broker, Path(folder), self.random
                )
            for decision in self.story.decisions:
                self.engine.at(decision.at_s, partial(self._do, decision))
            ends_s = max((each.at_s for each in self.story.decisions), default=0.0)
            self.healed_s = ends_s + HEALS_S
            self.engine.at(self.healed_s, self._heal)
            self.engine.run(self.healed_s + LEAST_S)
            while self.engine.now_s < self.healed_s + SETTLES_S and not self._is_over():
                self.engine.run(self.engine.now_s + LEAST_S)
            if self.is_drilled:
                self._run_drill()
            self.spooled = {
                thing: sum(home.forwarder.spool.backlog().values()) if home.forwarder else -1
                for thing, home in self.homes.items()
            }
            for thing, home in self.homes.items():
                if home.forwarder is not None:
                    spool = home.forwarder.spool
                    self.held[thing] = spool.device_state(Downlink.STATE, STATE_KEY)
                    spool.close()
        return self

    def _run_drill(self) -> None:
        """Let well-known things happen when all is well, and nothing waits."""
        self.drilled_s = self.engine.now_s
        for each in chain.from_iterable(map(drill, self.things)):
            self.engine.at(self.drilled_s + each.at_s, partial(self._do, each))
        self.engine.run(self.drilled_s + DRILL_S)

    def _is_over(self) -> bool:
        """Whether nothing waits any more: what follows are heartbeats."""
        read = [self.cloud.sqs.queues[name] for name in self.cloud.sqs.readers]
        read += [self.cloud.queue(f"{name}-inbox") for name in READERS]
        if any(each.messages for each in read if each is not self.cloud.queue("timers")):
            return False
        homes = self.homes.values()
        if any(each.forwarder is None or any(each.forwarder.spool.backlog().values()) for each in homes):
            return False
        if (
            self.cloud.unacknowledged()
            or self.operator.busy
            or any(each.is_busy for each in self.administrators.values())
        ):
            return False
        return not any(service.pending for home in homes for service in home.services.values())

    def _do(self, decision: Decision) -> None:
        act: Callable[[Decision], None] = getattr(self, "_" + decision.what.replace("-", "_"))
        if decision.what in FAULTS:
            self.faults[decision.what] += 1
            self.engine.note(decision.who, f"{decision.what} {decision.much:g}", is_fault=True)
        act(decision)

    def _heal(self) -> None:
        self.weather.down.clear()
        self.weather.slow.clear()
        for kind in (self.weather.lost, self.weather.dead, self.weather.refused):
            kind.clear()
        for home in self.homes.values():
            home.uplink.heal()
            home.uplink.loses_answers = 0
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

    def _say(self, decision: Decision) -> None:
        self._event(decision.who, decision.text)

    def _event(self, thing: str, kind: str) -> None:
        self._numbers[thing] += 1
        service = SENDERS[kind]
        attributes = {"id": f"{thing}-{self._numbers[thing]}", "source": f"/{thing}/{service}", "type": kind}
        event = write_event(attributes, DATA[kind])
        self.said[event.source, event.id] = self.engine.now_s, thing, service, event
        self.homes[thing].services[service].say(event)

    def _threshold(self, decision: Decision) -> None:
        kind, data = "org.eventplane.home.threshold.v1", {"reading": "heart-rate", "high": 120}
        self._burst(decision, partial(self._down, decision, kind, data, statekey=STATE_KEY))

    def _message(self, decision: Decision) -> None:
        kind = "org.eventplane.home.message.v1"
        self._burst(decision, partial(self._down, decision, kind, {"text": "Hello"}))

    def _burst(self, decision: Decision, act: Callable[[], object]) -> None:
        """Let as many follow each other as the decision says."""
        for at in range(int(decision.much)):
            self.engine.after(at * BURST_S, act)

    def _down(self, decision: Decision, kind: str, data: Any, **more: str) -> None:
        self._numbers["down"] += 1
        number = self._numbers["down"]
        attributes = {
            "id": f"down-{number}",
            "source": "/carers",
            "type": kind,
            "todevice": decision.who,
            "stateversion": str(number),
            **more,
        }
        event = write_event(attributes, data)
        self.desired.append((self.engine.now_s, decision.who, kind, number))
        body = to_message(event, {}).body
        self._carer(body)

    def _carer(self, body: str) -> None:
        if "sqs" in self.weather.down:
            self.engine.after(2.0, lambda: self._carer(body))
        else:
            self.cloud.sqs.send_message(QueueUrl=self.cloud.outboxes["carers"], MessageBody=body)

    def _put(self, decision: Decision) -> None:
        self.administrators[decision.who].do(decision)

    _post = _delete = _put

    def _redrive(self, _decision: Decision) -> None:
        self.operator.redrive()

    def _replay(self, decision: Decision) -> None:
        self.operator.replay(decision.who, decision.much)

    def _publish(self, decision: Decision) -> None:
        self.operator.publish(decision.text)

    def _drill(self, _decision: Decision) -> None:
        self.is_drilled = True

    # What fails.

    def _for(self, decision: Decision, act: Callable[[], object], undo: Callable[[], object]) -> None:
        act()
        self.engine.after(decision.much, undo)

    def _cut(self, decision: Decision) -> None:
        line = self.homes[decision.who].uplink
        self._for(decision, line.cut, line.heal)

    def _silent(self, decision: Decision) -> None:
        line = self.homes[decision.who].uplink
        self._for(decision, line.go_silent, line.heal)

    def _lose_puback(self, decision: Decision) -> None:
        self.homes[decision.who].uplink.loses_answers += int(decision.much)

    def _kill(self, decision: Decision) -> None:
        self.homes[decision.who].fuse = int(decision.much)

    def _power_cut(self, decision: Decision) -> None:
        self.homes[decision.who].kill(power=True)

    def _broker_stop(self, decision: Decision) -> None:
        broker = self.homes[decision.who].broker
        self._for(decision, broker.stop, broker.start)

    def _disk_full(self, decision: Decision) -> None:
        self._disk(decision, "full")

    def _disk_broken(self, decision: Decision) -> None:
        self._disk(decision, "broken")

    def _disk(self, decision: Decision, state: str) -> None:
        disk = self.homes[decision.who].disk
        self._for(decision, lambda: setattr(disk, "state", state), lambda: setattr(disk, "state", "well"))

    def _clock_step(self, decision: Decision) -> None:
        self.homes[decision.who].wrong_by_s += decision.much

    def _stall(self, decision: Decision) -> None:
        line = self.homes[decision.who].uplink
        self._for(decision, lambda: setattr(line, "stall_s", decision.much), line.heal)

    def _service_crash(self, decision: Decision) -> None:
        for each in self.homes[decision.who].services.values():
            self._for(
                decision,
                partial(setattr, each, "is_crashing", True),
                partial(setattr, each, "is_crashing", False),
            )

    def _no_reconciler(self, decision: Decision) -> None:
        self.weather.paused.add(decision.who)

    def _flood(self, decision: Decision) -> None:
        for _ in range(int(decision.much)):
            self._event(decision.who, "org.eventplane.climate.reading.v1")

    def _lose_answer(self, decision: Decision) -> None:
        self.weather.lost[decision.who] = int(decision.much)

    def _refuse(self, decision: Decision) -> None:
        self.weather.refused[decision.who] = int(decision.much)

    def _die(self, decision: Decision) -> None:
        self.weather.dead[decision.who] = int(decision.much)

    def _outage(self, decision: Decision) -> None:
        down = self.weather.down
        self._for(decision, lambda: down.add(decision.who), lambda: down.discard(decision.who))

    def _slow(self, decision: Decision) -> None:
        slow = self.weather.slow
        self._for(decision, lambda: slow.update({decision.who: 0.5}), lambda: slow.pop(decision.who, None))

    def _copy(self, decision: Decision) -> None:
        """A standard queue delivers its next message twice, the copy up to minutes later."""
        name = self.cloud.queue(decision.who).name
        self.cloud.sqs.copies[name] = decision.much if decision.much > 1.0 else 0.0

    def _late(self, decision: Decision) -> None:
        """What waits in a queue is seen later, and in another order."""
        queue = self.cloud.queue(decision.who)
        for each in queue.messages:
            each.visible_ms += round(1_000 * decision.much * self.random.random())
            self.cloud.sqs.changed(queue, each.visible_ms)

    def _endpoint(self, decision: Decision) -> None:
        endpoint = self.cloud.endpoints[decision.who]
        self._for(
            decision,
            lambda: setattr(endpoint, "fault", decision.text),
            lambda: setattr(endpoint, "fault", ""),
        )

    def _reader_kill(self, decision: Decision) -> None:
        those = [each for each in self.readers if each.participant == decision.who]
        reader = those[int(decision.much) % len(those)]
        if decision.much and isinstance(reader, CloudReader):
            reader.fuse = int(decision.much)
        else:
            reader.kill()

    def _dependency_down(self, decision: Decision) -> None:
        those = [each for each in self.readers if each.participant == decision.who]

        def set_all(is_down: bool) -> None:
            for each in those:
                each.is_dependency_down = is_down

        self._for(decision, lambda: set_all(True), lambda: set_all(False))
