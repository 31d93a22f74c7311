"""The device's end of the downlink against a cloud that repeats, a network that loses, doubles and reorders,
a home's broker that goes away, and power cuts before and after any commit.
"""

import json
import shutil
import tempfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edge.spool import BEFORE_EVERYTHING
from eventplane.contract import Downlink
from eventplane.downlink.device import Acknowledgement, AckStatus
from eventplane.downlink.wire import DELETE, KEY, KIND, ORDER, RESET, VERSION
from eventplane.envelope import parse_event
from eventplane_mqtt.mailbox import LinkName
from tests.examples import examples
from tests.scratch import SCRATCH
from tests.unit.edge.builders import command, state
from tests.unit.edge.fakes import Device

pytestmark = pytest.mark.source("K4", "K2")

STATES = ("setting/climate/threshold", "setting/light/level")
COMMANDS = ("command/app/ring", "command/app/say")
SEVERITIES = (1, 9, 24)


RESET_BY = 1_000
"""A state is numbered by its key's reset and its version, in one number: so many for a reset."""


def numbered(number: int, key: str, **attributes: Any) -> str:
    """The state of that number. The fence, which answers repeat, names the reset."""
    reset, version = divmod(number, RESET_BY)
    return state(version, key, reset=reset, fence=reset, **attributes)


class PowerCutError(Exception):
    """Nothing after this point happens any more."""


class DeviceMachine(RuleBasedStateMachine):
    """`desired` is what the cloud wants of each key; `network` what is on its way down, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(dir=SCRATCH))
        self.device = Device(self.directory / "spool.db")
        self.device.connect()
        self.desired: dict[tuple[Downlink, str], str] = {}
        self.versions: dict[tuple[Downlink, str], int] = defaultdict(int)
        self.network: list[str] = []
        self.seen: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.read: dict[int, int] = defaultdict(int)

    def teardown(self) -> None:
        """The cloud goes on until everything is answered: then the device and its service are up to date."""
        self.home_is_back()
        for _ in range(2):
            for text in [*self.network, *self.desired.values()]:
                self.deliver_text(text)
        self.network.clear()
        self.read_what_came()
        for (kind, key), text in self.desired.items():
            number = self.versions[kind, key]
            answers = [each for each in self.answers(kind, key) if self.number_of(each) == number]
            assert AckStatus.STORED in {each.result for each in answers}
            assert self.seen[kind, key][-1] == number
            if kind is Downlink.STATE:
                stored = self.device.spool.device_state(kind, key)
                assert stored is not None
                deleted = parse_event(text).attributes.get(DELETE) == "true"
                assert stored.json == ("" if deleted else text)
            else:
                assert sorted(set(self.seen[kind, key])) == list(range(1, number + 1))
        self.device.crash()
        shutil.rmtree(self.directory)

    @rule(key=st.sampled_from(STATES), deleted=st.booleans(), severity=st.sampled_from(SEVERITIES))
    def change(self, key: str, deleted: bool, severity: int) -> None:
        way = Downlink.STATE, key
        self.versions[way] += 1
        text = numbered(self.versions[way], key, deleted=deleted, severitynumber=severity)
        self.desired[way] = text
        self.network.append(text)

    @rule(key=st.sampled_from(COMMANDS), severity=st.sampled_from(SEVERITIES))
    def order(self, key: str, severity: int) -> None:
        """The next command of a key goes once the one before is answered."""
        way = Downlink.COMMAND, key
        number = self.versions[way]
        if number and number not in {each.order for each in self.answers(*way)}:
            return
        self.versions[way] += 1
        self.desired[way] = command(self.versions[way], key, severitynumber=severity)
        self.network.append(self.desired[way])

    @rule(
        key=st.sampled_from(STATES + COMMANDS),
        sender=st.sampled_from(
            [{}, {"senderservice": "sensor"}, {"senderdevice": "other", "senderservice": "app"}]
        ),
        reset=st.integers(0, 3),
    )
    def forge(self, key: str, sender: dict[str, str], reset: int) -> None:
        """Whoever gets at the device's inbox, and is no cloud service, is refused, however new his is."""
        text = state(10**9, key, reset=reset) if key in STATES else command(10**9, key)
        members = json.loads(text)
        del members["senderservice"]
        self.network.append(json.dumps(members | sender))

    @precondition(lambda self: self.desired)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """No answer in time: the newest again."""
        self.network.append(self.desired[data.draw(st.sampled_from(sorted(self.desired)))])

    @precondition(lambda self: self.network)
    @rule(
        data=st.data(),
        count=st.integers(1, 3),
        stays=st.booleans(),
        cut=st.sampled_from((None, "before", "after")),
    )
    def deliver(self, data: st.DataObject, count: int, stays: bool, cut: str | None) -> None:
        """Some of it arrives in one turn, perhaps to come again, perhaps with a power cut at the commit."""
        places = data.draw(st.lists(st.sampled_from(range(len(self.network))), max_size=count, unique=True))
        texts = [self.network[place] for place in places]
        if not stays:
            self.network = [each for place, each in enumerate(self.network) if place not in places]
        if cut is None:
            self.device.send_down(*texts)
            return
        self.arm(after=cut == "after")
        with suppress(PowerCutError):
            self.device.send_down(*texts)
        self.restart()

    @precondition(lambda self: self.network)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.network.remove(data.draw(st.sampled_from(self.network)))

    @precondition(lambda self: self.versions)
    @rule(data=st.data())
    def start_anew(self, data: st.DataObject) -> None:
        """An operator resets a state's key: it goes out again, as version 0 of the next reset."""
        keys = [key for kind, key in self.versions if kind is Downlink.STATE]
        if keys:
            way = Downlink.STATE, data.draw(st.sampled_from(sorted(keys)))
            self.versions[way] = (self.versions[way] // RESET_BY + 1) * RESET_BY
            self.desired[way] = numbered(self.versions[way], way[1])
            self.network.append(self.desired[way])

    @rule()
    def restart(self) -> None:
        self.read_what_came()
        self.device.restart()

    @rule()
    def home_is_away(self) -> None:
        self.read_what_came()
        if self.device.local_link.up:
            self.device.disconnect(LinkName.LOCAL)

    @rule()
    def home_is_back(self) -> None:
        if not self.device.local_link.up:
            self.device.connect(LinkName.LOCAL)

    @rule()
    def home_confirms(self) -> None:
        if self.device.local_link.up:
            published = self.device.local.last.published
            self.device.turn(*(self.device.puback(mid, LinkName.LOCAL) for mid, _, _ in published))

    @invariant()
    def no_older_one_follows_a_newer(self) -> None:
        self.read_what_came()
        for (kind, _), numbers in self.seen.items():
            # Commands without the home's confirmation come again over a new connection, in order.
            seen = list(dict.fromkeys(numbers)) if kind == Downlink.COMMAND else numbers
            assert seen == sorted(seen)

    @invariant()
    def of_a_state_at_most_one_delivery_waits(self) -> None:
        waiting = [
            parse_event(each.json).attributes
            for rank in range(3)
            for each in self.device.spool.read("display.inbox", rank, BEFORE_EVERYTHING, 1000)
        ]
        states = [each[KEY] for each in waiting if each[KIND] == Downlink.STATE]
        assert len(states) == len(set(states))

    @invariant()
    def what_was_answered_is_held(self) -> None:
        for kind, key in self.desired:
            answered = [
                self.number_of(each) for each in self.answers(kind, key) if each.result is AckStatus.STORED
            ]
            stored = self.device.spool.device_state(kind, key)
            if answered:
                held = stored.state_version
                number = RESET_BY * held.reset + held.version
                assert max(answered) <= (number if kind is Downlink.STATE else held.order)

    def deliver_text(self, text: str) -> None:
        self.device.send_down(text, after=1.0)
        self.home_confirms()

    def arm(self, *, after: bool) -> None:
        """The next commit is the last thing that happens, or does not happen any more."""
        spool = self.device.spool
        commit = spool.commit

        def cut(*given: Any, **named: Any) -> None:
            if after:
                commit(*given, **named)
            raise PowerCutError

        spool.commit = cut  # type: ignore[method-assign]

    def read_what_came(self) -> None:
        """What the service got over each connection."""
        for wire in self.device.local.all:
            for _, topic, payload in wire.published[self.read[id(wire)] :]:
                if topic.endswith("/display/inbox"):
                    attributes = parse_event(payload).attributes
                    number = RESET_BY * int(str(attributes.get(RESET, 0))) + int(str(attributes[VERSION]))
                    if attributes[KIND] == Downlink.COMMAND:
                        number = int(str(attributes[ORDER]))
                    self.seen[Downlink(attributes[KIND]), str(attributes[KEY])].append(number)
            self.read[id(wire)] = len(wire.published)

    def answers(self, kind: Downlink, key: str) -> list[Acknowledgement]:
        return [each for each in self.device.acknowledgements() if (each.kind, each.key) == (kind, key)]

    def number_of(self, answer: Acknowledgement) -> int:
        by_version = RESET_BY * answer.fence + answer.version
        return by_version if answer.kind is Downlink.STATE else answer.order


DeviceMachine.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=30)
TestDevice = DeviceMachine.TestCase
