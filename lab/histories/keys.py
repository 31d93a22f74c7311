"""The part of a story that is about keys: renewals, losses and thefts, and what operators do about them.

The device's and the cloud's code run; AWS IoT's provisioning, and TLS, are models. In a pair's file stands
the id of its certificate where its private key would be.
"""

from __future__ import annotations

import json
from base64 import encodebytes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, cast

from eventplane.topics import (
    CLAIM_CLIENT_PREFIX,
    CREATE_WITH_KEY_TOPIC,
    RENEWAL_CLIENT_PREFIX,
    answer_topics,
)
from eventplane_mqtt.reconnection import Backoff
from lab.histories.cloud import CloudModel
from lab.histories.engine import Fiber
from lab.histories.iot_core import Door
from lab.histories.operators import Operator
from lab.histories.story import OF_PROGRAMS, Story, StoryStep
from lab.histories.wiring import Wiring
from parts.fleet.service import FleetRegistry
from parts.provisioning import OfflineError, RejectedError
from parts.provisioning.device import keep_trying
from parts.provisioning.exchange import Exchange, Keep
from parts.provisioning.renewal import Pairs, Renewal
from parts.simulate.home import HomeModel

HOOK: Final = "provisioning-hook"
KEEPER: Final = "certificate-keeper"
HOOK_S: Final = 5.0
"""How long AWS IoT waits for the hook, seconds."""

ACTIVATES_S: Final = 0.5
"""How long a certificate takes at most from the hook's word until it is active, seconds."""

TIMEOUT_S: Final = 5.0
"""How long a device waits for an answer."""

LOOK_S: Final = 30.0
"""How often a device looks whether its certificate is good: a real one looks every four hours."""

AGAIN_S: Final = 5.0
"""The least pause between two attempts of a device, seconds, and what is added at most."""

CALM_S: Final = 300.0
"""From the last deed of a thief until all devices have to be back."""

DAYS: Final = 7
"""How long the claim may register a device that was recovered."""

MAX_AGE_S: Final = 365 * 86_400.0
TEMPLATE: Final = "fleet"


class Keys:
    """The certificates of `homes`, their programs that renew them, and a thief of each."""

    def __init__(self, cloud: CloudModel, operator: Operator, homes: Mapping[str, HomeModel]) -> None:
        self.cloud = cloud
        self.claim = self.issue()
        self.thieves = {thing: Thief(self, thing) for thing in homes}
        self.recovered_s: dict[str, float] = {}
        """When the last recovery of a device was done."""
        self._active_s: dict[str, float] = {}
        self.at_end: dict[str, str] = {}
        """The certificate with which each device is connected in the end, and the one in its file."""
        self.filed: dict[str, str] = {}
        self._operator = operator
        self._homes = homes
        self.identities = {thing: Pairs(home.folder / "identity.pem") for thing, home in homes.items()}
        """The certificate of each device."""
        self._renewals = {thing: Provisioning(self, home) for thing, home in homes.items()}
        iot = cloud.iot
        iot.is_watched = True
        iot.certificates.update_certificate(certificateId=self.claim, newStatus="ACTIVE")
        for thing, home in homes.items():
            own, identity = self.issue(), self.identities[thing]
            iot.certificates.create_thing(thingName=thing)
            self.activate(thing, own)
            identity.adopt(identity.stage(own, pem(cloud.engine.now_ms)))
            cloud.registry.change(lambda found, own=own: replace(found, certificate=own), thing)  # type: ignore[misc]
            home.uplink.broker = Door(iot, partial(shown, identity.path))

    def issue(self) -> str:
        """Return a certificate that is not active."""
        return str(self.cloud.iot.certificates.create_keys_and_certificate()["certificateId"])

    def activate(self, thing: str, certificate: str) -> None:
        """Make a certificate the thing's."""
        iot = self.cloud.iot.certificates
        self._active_s[certificate] = self.cloud.engine.now_s
        iot.update_certificate(certificateId=certificate, newStatus="ACTIVE")
        iot.attach_thing_principal(thingName=thing, principal=certificate)

    def look(self) -> None:
        """Let each device look at its certificate."""
        for each in self._renewals.values():
            each.begin()

    def note_end(self) -> None:
        """Take down with which certificate each device is connected, and will be."""
        links = self.cloud.iot.broker.links
        self.at_end = {thing: links[thing].principal for thing in self._homes if thing in links}
        self.filed = {thing: shown(each.path) for thing, each in self.identities.items()}

    def do(self, decision: StoryStep) -> None:
        """Do what is decided of a key."""
        identity, thief = self.identities[decision.who], self.thieves[decision.who]
        match decision.what, decision.text:
            case "key", "is due":
                self._renewals[decision.who].begin(is_due=True)
            case "key", "is lost":
                identity.path.unlink(missing_ok=True)
                identity.drop(identity.unproven())
            case "key", "is stolen":
                thief.keys += [shown(each) for each in (identity.path, *identity.unproven())]
            case "thief", deed:
                self.cloud.engine.spawn("thief", partial(thief.do, deed))
            case "fleet", verb:
                self._operator.manage(f"{verb} {decision.who}", partial(self._manage, decision.who, verb))

    def _manage(self, thing: str, verb: str, fleet: FleetRegistry) -> None:
        thief = self.thieves[thing]
        match verb:
            case "quarantine":
                fleet.quarantine(thing, "a story")
            case "release":
                fleet.release(thing)
            case "condemn":
                fleet.condemn(thing, next(reversed(thief.keys), ""))
            case "allow-replacement":
                fleet.allow_replacement(thing, DAYS)
            case _:
                path = self.identities[thing].path
                kept = shown(path) if verb == "recover --keep" else ""
                fleet.recover(thing, kept or None, DAYS)
                if kept and shown(path) != kept:
                    # The device got another one meanwhile, which is condemned now: the operator sees it away.
                    fleet.recover(thing, None, DAYS)
                self.recovered_s[thing] = now_s = self.cloud.engine.now_s
                # Another one was in flight.
                thief.left += [
                    each
                    for each in filter(self.cloud.iot.accepts, thief.keys)
                    if now_s - self._active_s[each] > 2 * ACTIVATES_S
                ]

    def answer(self, client: str, asking: str, topic: str, payload: bytes) -> tuple[str, bytes]:
        """Return topic and payload of AWS IoT's answer to a request of fleet provisioning."""
        accepted, rejected = answer_topics(topic)
        if topic == CREATE_WITH_KEY_TOPIC:
            new = self.issue()
            body = {"certificatePem": pem(self.cloud.engine.now_ms), "privateKey": new}
            return accepted, json.dumps({**body, "certificateOwnershipToken": new}).encode()
        said = json.loads(payload)
        thing, offered = said["parameters"]["SerialNumber"], said["certificateOwnershipToken"]
        event = {
            "parameters": said["parameters"],
            "clientId": client,
            "claimCertificateId": asking,
            "certificateId": offered,
        }
        if not self._is_allowed(event):
            refusal = {"statusCode": 403, "errorCode": "AccessDenied", "errorMessage": "the hook"}
            return rejected, json.dumps(refusal).encode()
        self.cloud.engine.sleep(ACTIVATES_S * self.cloud.weather.share())
        self.activate(thing, offered)
        return accepted, json.dumps({"thingName": thing}).encode()

    def _is_allowed(self, event: Mapping[str, Any]) -> bool:
        engine = self.cloud.engine
        call = engine.spawn(HOOK, lambda: Wiring(self.cloud).provisioning_hook(HOOK).decide(event))
        caller = cast("Fiber", engine.task)
        call.when_over(lambda: caller.wake_at(engine.now_s))
        caller.wait_for(lambda: call.is_over, HOOK_S)
        call.kill()
        return bool(call.result)


class Provisioning:
    """The program of a `home` that gets and renews its certificate."""

    def __init__(self, keys: Keys, home: HomeModel) -> None:
        self._keys = keys
        self._home = home
        self._task: Fiber | None = None
        self._ahead_s = 0.0

    def begin(self, *, is_due: bool = False) -> None:
        """Start the program, if it is not running; a certificate that `is_due` is too old for it."""
        self._ahead_s = 2 * MAX_AGE_S if is_due else self._ahead_s
        if self._task is None or self._task.is_over:
            self._task = self._keys.cloud.engine.spawn(f"{self._home.thing} provisioning", self._run)

    def _run(self) -> None:
        home, cloud = self._home, self._keys.cloud
        identity, conversation = self._keys.identities[home.thing], Conversation(self._keys, home)
        renewal = Renewal(identity, conversation, TEMPLATE, home.thing, MAX_AGE_S, None)
        backoff = Backoff(AGAIN_S, AGAIN_S, cloud.weather.share)
        now_s: Callable[[], float] = lambda: home.now().timestamp() + self._ahead_s  # noqa: E731
        keep_trying(renewal, identity, backoff, now_s, cloud.engine.sleep)
        self._ahead_s = 0.0


class Conversation:
    """See `parts.provisioning.conversation.MqttCloud`: the same over the line of a `home`."""

    def __init__(self, keys: Keys, home: HomeModel) -> None:
        self._keys = keys
        self._home = home

    def run(self, exchange: Exchange, keep: Keep, pair: Path | None = None) -> None:
        client, asking = self._connect_beside(pair)

        def ask(_step: str, topic: str, payload: bytes) -> tuple[str, bytes]:
            self._travel(client)
            answer = self._keys.answer(client, asking, topic, payload)
            self._travel(client, is_back=True)
            return answer

        exchange.run(ask, keep)

    def try_pair(self, pair: Path) -> None:
        self._connect(self._home.thing, shown(pair))

    def accepts(self, pair: Path | None) -> bool:
        try:
            self._connect_beside(pair)
        except OfflineError:
            return False
        return True

    def _connect_beside(self, pair: Path | None) -> tuple[str, str]:
        prefix, certificate = (
            (RENEWAL_CLIENT_PREFIX, shown(pair)) if pair else (CLAIM_CLIENT_PREFIX, self._keys.claim)
        )
        self._connect(client := prefix + self._home.thing, certificate)
        return client, certificate

    def _connect(self, client: str, certificate: str) -> None:
        self._travel(client)
        if not self._keys.cloud.iot.connect(client, certificate):
            raise OfflineError(client, "bad certificate")
        self._travel(client, is_back=True)

    def _travel(self, client: str, *, is_back: bool = False) -> None:
        """Go one way over the line. Raises `OfflineError`."""
        line, weather, engine = self._home.uplink, self._keys.cloud.weather, self._keys.cloud.engine
        thing = self._home.thing
        program = f"{thing} {'proof' if client == thing else 'provisioning'}"
        if not is_back and weather.meets(weather.dead, program):
            cast("Fiber", engine.task).kill()
        engine.sleep(line.delay_s)
        is_lost = weather.meets(weather.lost if is_back else weather.refused, program)
        if is_lost or line.is_silent or not line.is_up:
            engine.sleep(TIMEOUT_S)
            raise OfflineError(client, "no answer")


class Thief:
    """Has `keys` in the name of `thing`, and the claim. `uses` are its connections and their moments, `left`
    are keys that a recovery left good."""

    def __init__(self, keys: Keys, thing: str) -> None:
        self.keys: list[str] = []
        self.uses: list[tuple[float, str]] = []
        self.left: list[str] = []
        self._all = keys
        self._thing = thing

    def do(self, deed: str) -> None:
        """Connect or renew with the newest key that is good, or register with the claim."""
        iot = self._all.cloud.iot
        good = next(filter(iot.accepts, reversed(self.keys)), None)
        device = self._all.cloud.registry.read(self._thing)
        if deed == "claims":
            self._ask(CLAIM_CLIENT_PREFIX, self._all.claim)
        elif device is not None and device.replacement_until_ms > iot.engine.now_ms:
            pass  # who connects first while the claim is allowed has the name: the thief is late
        elif good is not None:
            self.uses.append((iot.engine.now_s, good))
            if deed == "renews":
                self._ask(RENEWAL_CLIENT_PREFIX, good)
            else:
                iot.connect(self._thing, good)

    def _ask(self, prefix: str, asking: str) -> None:
        client, exchange = prefix + self._thing, Exchange(TEMPLATE, self._thing, None)
        self._all.cloud.iot.connect(client, asking)
        with suppress(RejectedError):
            exchange.run(
                lambda _, topic, payload: self._all.answer(client, asking, topic, payload),
                lambda _, key: self.keys.append(str(key)),
            )


def shown(pair: Path) -> str:
    """Return the certificate in a pair's file; '' if there is none."""
    return pair.read_text().split("\n", 1)[0] if pair.exists() else ""


def pem(now_ms: int) -> str:
    """Return a certificate that is valid from now on, as far as a device reads it."""

    def der(tag: int, content: bytes) -> bytes:
        return bytes((tag, len(content))) + content

    start = datetime.fromtimestamp(now_ms / 1_000, UTC)
    ends = (start, start + timedelta(days=8_000))
    validity = der(0x30, b"".join(der(0x17, f"{each:%y%m%d%H%M%SZ}".encode()) for each in ends))
    body = encodebytes(der(0x30, der(0x30, der(0x02, b"\x01") + 2 * der(0x30, b"") + validity))).decode()
    return f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"


# Of a story.

SHARE: Final = 0.3
Plot = Callable[[Random, "Some", float], Iterator[StoryStep]]


class Some:
    """Draws what happens to the keys of a `thing`."""

    def __init__(self, random: Random, thing: str) -> None:
        self._random = random
        self._thing = thing

    def moments(self, number: int, first_s: float, last_s: float) -> list[float]:
        return sorted(round(self._random.uniform(first_s, last_s), 2) for _ in range(number))

    def __call__(
        self, what: str, texts: str, number: int, first_s: float, last_s: float
    ) -> Iterator[StoryStep]:
        """Draw `what` so many times, each with one of the `texts`."""
        for at_s in self.moments(number, first_s, last_s):
            yield StoryStep(at_s, what, self._thing, text=self._random.choice(texts.split(", ")))


def with_keys(seed: int, story: Story) -> Story:
    """Return `story`, of some seeds with what happens to the keys of its homes."""
    random = Random(f"{seed} of keys")
    if random.random() >= SHARE:
        return story
    lasts_s = max(each.at_s for each in story.decisions)
    decisions: list[StoryStep] = []
    programs = [HOOK, KEEPER, "operator"]
    for thing in (f"home-{number + 1}" for number in range(story.homes)):
        some = Some(random, thing)
        decisions += random.choice(PLOTS)(random, some, lasts_s)
        decisions += some("key", "is looked at", 1, lasts_s + CALM_S, lasts_s + CALM_S)
        programs += [f"{thing} provisioning", f"{thing} proof"]
    moments = [each.at_s for each in decisions]
    for _ in range(random.randrange(6)):
        at_s = round(random.choice(moments) + random.uniform(0.0, 2 * LOOK_S), 2)
        what = random.choice(OF_PROGRAMS)
        decisions.append(StoryStep(at_s, what, random.choice(programs), random.randint(1, 8)))
    return replace(story, decisions=tuple(sorted((*story.decisions, *decisions))))


def _renewals(random: Random, some: Some, lasts_s: float) -> Iterator[StoryStep]:
    yield from some("key", "is due", random.randint(1, 4), 5.0, lasts_s)
    if random.random() < 0.3:
        taken_s, back_s = some.moments(2, 5.0, lasts_s)
        yield from some("fleet", "quarantine", 1, taken_s, taken_s)
        yield from some("fleet", "release", 1, back_s, back_s)


def _loss(random: Random, some: Some, lasts_s: float) -> Iterator[StoryStep]:
    """Draw a lost key, and how an operator lets the claim register the device, with a thief who has it."""
    lost_s, allowed_s = some.moments(2, 5.0, lasts_s)
    yield from some("key", "is lost", 1, lost_s, lost_s)
    yield from some("fleet", "recover, allow-replacement", 1, allowed_s, allowed_s)
    yield from some("thief", "claims", random.choice((0, 3, 12)), allowed_s - 1.0, allowed_s + 10.0)
    yield from some("thief", "renews, connects", 3, allowed_s + 10.0, lasts_s + CALM_S)


def _theft(random: Random, some: Some, lasts_s: float) -> Iterator[StoryStep]:
    """Draw a theft of the key; the operator's recovery comes in the midst of the thief's deeds."""
    stolen_s, recovered_s = some.moments(2, 5.0, lasts_s)
    yield from some("key", "is stolen", 1, stolen_s, stolen_s)
    yield from some("thief", "renews, connects", random.randint(2, 6), stolen_s, recovered_s + 30.0)
    yield from some("key", "is due", random.randint(0, 2), stolen_s, recovered_s)
    yield from some("fleet", "quarantine, condemn, release", random.randint(0, 2), stolen_s, recovered_s)
    yield from some("fleet", "recover", 1, recovered_s, recovered_s)
    yield from some("thief", "renews, connects", 3, recovered_s, lasts_s + CALM_S)


def _stolen_claim(random: Random, some: Some, lasts_s: float) -> Iterator[StoryStep]:
    """Draw a thief who has the claim only: the device is recovered with the key that it has."""
    at_s, recovered_s = some.moments(2, 5.0, lasts_s)
    yield from some("fleet", "quarantine, allow-replacement", 1, at_s, at_s)
    yield from some("thief", "claims, connects", random.choice((1, 12)), at_s, recovered_s + 30.0)
    yield from some("fleet", "recover --keep", 1, recovered_s, recovered_s)


PLOTS: Final[Sequence[Plot]] = (_renewals, _loss, _theft, _stolen_claim)
