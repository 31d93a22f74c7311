"""Whatever happens to a device, in whatever order: it keeps a certificate, and nobody else keeps one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eventplane.device_record import REGISTRY, Candidate, Device, LifecycleState
from parts.fleet.lifecycle import (
    MAX_CANDIDATES,
    RefusedError,
    RegistrationRequest,
    condemned,
    decommissioned,
    made,
    quarantined,
    reactivated,
    recovered,
    registered,
    released,
    replaceable,
    retired,
    seen,
    taken_over,
)

DAY_MS = 86_400_000
texts = st.text("abc0", min_size=1, max_size=4)
numbers = st.integers(0, 2**50)

devices = st.builds(
    Device,
    thing=texts,
    state=st.sampled_from(LifecycleState),
    changed_at_ms=numbers,
    since_ms=numbers,
    certificate=st.none() | texts,
    certificate_since_ms=numbers,
    candidates=st.lists(st.builds(Candidate, texts, numbers, texts), max_size=3).map(tuple),
    replaced=st.frozensets(texts, max_size=3),
    former=st.lists(texts, max_size=3).map(tuple),
    condemned=st.frozensets(texts, max_size=3),
    registrations=numbers,
    day=numbers,
    asked=st.lists(texts, max_size=3).map(tuple),
    replacement_until_ms=numbers,
    reason=st.text(max_size=5),
    suspended=st.frozensets(texts, max_size=3),
    before=st.none() | st.sampled_from(LifecycleState),
    takeovers=numbers,
    takeover_window=numbers,
    revision=numbers.map(lambda each: each + 1),
)


@given(devices)
def test_an_item_holds_all_of_a_device(device: Device) -> None:
    assert REGISTRY.from_item(REGISTRY.to_item(device)) == device


class Life(RuleBasedStateMachine):
    """A device that holds `own`, which it has proven, and the `unproven`, beside a thief who holds `stolen`.

    AWS IoT's side is what is `active`. The thief has the claim, and copies nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1
        self.number = 0
        self.device = made("home", 0)
        self.active: set[str] = set()
        self.own: str | None = None
        self.unproven: list[str] = []
        self.stolen: set[str] = set()

    def ask(self, client_id: str, asking: str) -> list[str]:
        self.number += 1
        offered = f"c{self.number}"
        if client_id != "claim-home" and asking not in self.active:
            return []
        try:
            self.device = registered(
                self.device, RegistrationRequest("home", client_id, asking, offered), self.now_ms
            )
        except RefusedError:
            return []
        self.active.add(offered)
        # The report of the connection that `asking` stood with.
        self.end(self.device.replaced & self.device.condemned)
        return [offered]

    def connect(self, certificate: str) -> bool:
        if certificate not in self.active:
            return False
        self.device = seen(self.device, certificate, self.now_ms)
        self.end(self.device.replaced & self.device.condemned)
        return True

    def end(self, certificates: frozenset[str]) -> None:
        self.active -= certificates
        self.device = retired(self.device, certificates)

    @property
    def held(self) -> set[str]:
        return {*self.unproven, *([self.own] if self.own else [])}

    @rule()
    def a_day_passes(self) -> None:
        self.now_ms += DAY_MS

    @precondition(lambda self: self.own not in self.active)
    @rule()
    def the_device_asks_with_the_claim(self) -> None:
        # It stores the pair before it registers it: an answer that is lost loses nothing.
        self.unproven += self.ask("claim-home", "claim")

    @precondition(lambda self: self.own is not None)
    @rule()
    def the_device_renews(self) -> None:
        self.unproven += self.ask("renewal-home", self.own or "")

    @precondition(lambda self: self.unproven)
    @rule(data=st.data(), is_known=st.booleans())
    def the_device_connects_and_may_not_know_it(self, data: st.DataObject, is_known: bool) -> None:
        tried = data.draw(st.sampled_from(self.unproven))
        if self.connect(tried) and is_known:
            self.own, self.unproven = tried, []

    @precondition(lambda self: self.own is not None)
    @rule()
    def an_old_connection_is_reported(self) -> None:
        self.connect(self.own or "")

    @rule()
    def the_keeper_retires(self) -> None:
        self.end(self.device.replaced)

    @rule()
    def a_connection_is_taken_over(self) -> None:
        self.device = taken_over(self.device, self.now_ms)

    @rule()
    def the_operator_quarantines(self) -> None:
        self.device = quarantined(self.device, frozenset(self.active), "", self.now_ms)
        self.active -= self.device.suspended

    @rule()
    def the_operator_releases(self) -> None:
        self.device = released(self.device, self.now_ms)
        self.active |= self.device.suspended - self.device.replaced
        self.device = reactivated(self.device, self.device.suspended)

    @precondition(lambda self: self.device.candidates or self.device.certificate)
    @rule()
    def a_thief_with_the_claim_is_second(self) -> None:
        self.stolen.update(self.ask("claim-home", "claim"))

    @precondition(lambda self: self.device.certificate and self.stolen)
    @rule(data=st.data())
    def a_thief_connects(self, data: st.DataObject) -> None:
        self.connect(data.draw(st.sampled_from(sorted(self.stolen))))

    @precondition(lambda self: self.device.state is LifecycleState.PROVISIONED)
    @rule(
        client_id=st.sampled_from(["renewal-home", "home", ""]),
        asking=st.sampled_from(["claim", ""]),
    )
    def a_thief_asks(self, client_id: str, asking: str) -> None:
        assert not self.ask(client_id, asking)

    @invariant()
    def a_device_in_service_can_connect(self) -> None:
        if self.device.state is LifecycleState.PROVISIONED:
            assert self.held & self.active & {self.device.certificate}

    @invariant()
    def what_is_active_is_known(self) -> None:
        device = self.device
        assert self.active <= device.certificates
        assert device.certificates - device.replaced - device.suspended <= self.active

    @invariant()
    def nothing_that_was_condemned_is_active(self) -> None:
        assert not self.device.condemned & self.active

    @invariant()
    def a_quarantined_device_cannot_connect(self) -> None:
        if self.device.state is LifecycleState.QUARANTINED:
            assert not self.active


class Theft(Life):
    """The thief copies what the device holds, and goes on with it. Then comes the one command, and nothing
    is copied any more; a flood of registrations with the claim does not keep the device out."""

    def __init__(self) -> None:
        super().__init__()
        self.is_recovered = False

    @precondition(lambda self: not self.is_recovered)
    @rule()
    def a_thief_copies_the_keys(self) -> None:
        self.stolen |= self.held

    @precondition(lambda self: self.stolen)
    @rule(data=st.data())
    def a_thief_renews(self, data: st.DataObject) -> None:
        self.stolen.update(self.ask("renewal-home", data.draw(st.sampled_from(sorted(self.stolen)))))

    @rule(data=st.data())
    def the_operator_condemns(self, data: st.DataObject) -> None:
        known = sorted(self.device.certificates | {*self.device.former})
        if known:
            self.condemn(frozenset({data.draw(st.sampled_from(known))}))

    def condemn(self, certificates: frozenset[str]) -> None:
        self.device = condemned(self.device, certificates, self.now_ms)
        self.end(self.device.replaced & self.device.condemned)

    @precondition(lambda self: self.device.state is not LifecycleState.MADE)
    @rule()
    def the_operator_allows_a_replacement(self) -> None:
        if self.device.before is not LifecycleState.MADE:
            self.device = replaceable(self.device, self.now_ms + 7 * DAY_MS, self.now_ms)

    @rule(data=st.data())
    def the_operator_recovers_the_device(self, data: st.DataObject) -> None:
        clean = self.held & (self.device.certificates | {*self.device.former}) - self.stolen
        keep = data.draw(st.sampled_from([None, *sorted(clean)]))
        until_ms = self.now_ms + 7 * DAY_MS
        self.device = recovered(self.device, frozenset(self.active), keep, until_ms, self.now_ms)
        self.end(self.device.replaced & self.device.condemned)
        self.active |= self.device.suspended
        self.device = reactivated(self.device, self.device.suspended)
        self.is_recovered = True
        if keep:
            assert self.device.certificate == keep
            assert keep in self.active
            assert self.ask("renewal-home", keep), "the thief used up the device's day"
        else:
            flood = data.draw(st.integers(0, 2 * MAX_CANDIDATES))
            for _ in range(flood):
                self.stolen.update(self.ask("claim-home", "claim"))
            offered = self.ask("claim-home", "claim")
            assert offered, "the thief used up the device's day"
            for _ in range(flood):
                self.stolen.update(self.ask("claim-home", "claim"))
            assert self.connect(*offered)
            assert self.device.certificate == offered[0]
            self.own, self.unproven = offered[0], []
            self.end(self.device.replaced)  # a minute later

    @invariant()
    def no_key_of_the_thief_is_good_after_the_one_command(self) -> None:
        assert not self.is_recovered or not self.stolen & self.active

    # What the command is for.
    def a_device_in_service_can_connect(self) -> None: ...

    a_thief_with_the_claim_is_second = a_device_in_service_can_connect
    a_thief_asks = a_device_in_service_can_connect


TestLife = Life.TestCase
TestTheft = Theft.TestCase


@given(devices, numbers)
def test_a_decommissioned_device_gets_nothing(device: Device, now_ms: int) -> None:
    gone = decommissioned(device, "", now_ms)
    for client_id in (f"claim-{device.thing}", f"renewal-{device.thing}"):
        for asking in {*device.certificates, "claim"}:
            with pytest.raises(RefusedError):
                registered(gone, RegistrationRequest(device.thing, client_id, asking, "new"), now_ms)
