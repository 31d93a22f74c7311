"""A plane for the control room without a process: faults hold events up, their end lets them go."""

import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from contract.offers import Offer, completed, offers
from eventplane.envelope import Envelope, write_event
from lab.control_room.plane import QUESTIONS, CommandResult, RoomFault, Stage, StageStanding, State
from lab.control_room.tally import Tally, due_inboxes
from lab.errors import LocalError
from tests.plane import shipped_contract

CONTRACT = shipped_contract()
SENDER = "voice-service"
ALARM = "org.eventplane.alarm.keyword.v1"

DOWN = {
    RoomFault.FORWARDER: Stage.FORWARDER,
    RoomFault.MOSQUITTO: Stage.BROKER,
    RoomFault.ROUTER: Stage.ROUTERS,
    RoomFault.S3: Stage.ARCHIVE,
}


def alarm(number: int, **more: str) -> Envelope:
    """The alarm `number` of a home."""
    attributes = {"id": f"alarm-{number}", "source": "/homes/home-1/voice-service", "type": ALARM, **more}
    return write_event({"specversion": "1.0", **attributes}, {"keyword": "help"})


class FakePlane:
    """A plane in memory: an alarm arrives at once, or when all faults but S3's are over."""

    def __init__(self) -> None:
        self.active: set[RoomFault] = set()
        self.asked: list[tuple[str, object]] = []
        self.read_as: set[str] = set()
        self.answers: dict[str, str] = {}
        self.is_broken = False
        self.tally = Tally(CONTRACT)
        self._lock = threading.Lock()
        self._waiting: list[Envelope] = []
        self._sent = self._arrived = 0

    def state(self) -> State:
        with self._lock:
            if self.is_broken:
                raise LocalError("the emulated cloud has ended; see its log")
            down = {DOWN[each] for each in self.active if each in DOWN}
            standings = {
                stage: StageStanding(
                    stage not in down,
                    self._sent if stage in (Stage.HOME, Stage.BROKER) else self._arrived,
                    len(self._waiting) if stage is Stage.FORWARDER else 0,
                )
                for stage in Stage
            }
            return State(
                contract=CONTRACT.version,
                home="home-1",
                stages=standings,
                counters=self.tally.counters(len(self._waiting), not self.active, self._now()),
                latency=self.tally.latency(),
                active=set(self.active),
                events=self.tally.last(),
                readers={each: each in self.read_as for each in ("alarm-centre", "family-app")},
                commands={"Send an event": "eventplane send event.json"},
            )

    def offers(self) -> tuple[Offer, ...]:
        return offers(CONTRACT, "home-1")

    def send_alarm(self) -> str:
        return self.send(SENDER, {"source": f"/homes/home-1/{SENDER}", "type": ALARM})

    def send(self, sender: str, event: Mapping[str, Any]) -> str:
        whole = completed(CONTRACT, event, f"alarm-{self._sent + 1}", datetime.now(UTC))
        with self._lock:
            self._sent += 1
            self.tally.sent(whole, sender, self._now())
            self._waiting.append(whole)
        self._flow()
        return whole.id

    def read(self, participant: str, *, is_read: bool) -> None:
        self.asked.append(("read" if is_read else "left", participant))
        (self.read_as.add if is_read else self.read_as.discard)(participant)

    def ask(self, question: str, words: Sequence[str]) -> CommandResult:
        self.asked.append((question, [*words]))
        if question not in self.answers:
            raise LocalError("the emulated cloud has ended; see its log")
        return CommandResult(f"eventplane {QUESTIONS[question][0]}", 0, self.answers[question])

    def strike(self, fault: RoomFault) -> None:
        with self._lock:
            self.asked.append(("strike", fault))
            self.active.add(fault)

    def heal(self, fault: RoomFault) -> None:
        with self._lock:
            self.asked.append(("heal", fault))
            self.active.discard(fault)
        self._flow()

    def _flow(self) -> None:
        with self._lock:
            if self.active - {RoomFault.S3}:
                return
            for event in self._waiting:
                self._arrived += 1
                for inbox in due_inboxes(CONTRACT, event, SENDER)[0]:
                    note = self.tally.handled if inbox == "call-service" else self.tally.received
                    note(inbox, (event.source, event.id), self._now())
            self._waiting.clear()

    @staticmethod
    def _now() -> float:
        return 1_000 * time.time()
