"""Whatever happens to a device, in whatever order: it keeps a certificate, and nobody else gets one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eventplane.fleet import (
    REGISTRY,
    Device,
    LifecycleState,
    RefusedError,
    RegistrationRequest,
    decommissioned,
    made,
    quarantined,
    reactivated,
    registered,
    released,
    retired,
    seen,
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
    pending=st.none() | texts,
    replaced=st.frozensets(texts, max_size=3),
    registrations=numbers,
    day=numbers,
    registered_today=numbers,
    replacement_until_ms=numbers,
    reason=st.text(max_size=5),
    suspended=st.frozensets(texts, max_size=3),
    before=st.none() | st.sampled_from(LifecycleState),
    revision=numbers.map(lambda each: each + 1),
)


@given(devices)
def test_an_item_holds_all_of_a_device(device: Device) -> None:
    assert REGISTRY.from_item(REGISTRY.to_item(device)) == device


class Life(RuleBasedStateMachine):
    """A device beside a thief with the claim. AWS IoT's side is what is `active`."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.number = 0
        self.device = made("home", 0)
        self.active: set[str] = set()
        self.own: str | None = None
        self.next: str | None = None

    def ask(self, client_id: str, asking: str) -> str | None:
        self.number += 1
        offered = f"c{self.number}"
        try:
            self.device = registered(
                self.device, RegistrationRequest("home", client_id, asking, offered), self.now_ms
            )
        except RefusedError:
            return None
        self.active.add(offered)
        return offered

    @rule()
    def a_day_passes(self) -> None:
        self.now_ms += DAY_MS

    @precondition(lambda self: self.own is None)
    @rule()
    def the_device_asks_with_the_claim(self) -> None:
        self.next = self.ask("claim-home", "claim") or self.next

    @precondition(lambda self: self.own is not None)
    @rule()
    def the_device_renews(self) -> None:
        # It stores the pair before it registers it: an answer that is lost loses nothing.
        self.next = self.ask("renewal-home", self.own or "") or self.next

    @precondition(lambda self: self.next is not None)
    @rule()
    def the_device_connects_with_the_new_one_and_keeps_it(self) -> None:
        if self.next in self.active:
            self.own, self.next = self.next, None
            self.device = seen(self.device, self.own or "", self.now_ms)

    @precondition(lambda self: self.own is not None)
    @rule()
    def an_old_connection_is_reported(self) -> None:
        self.device = seen(self.device, self.own or "", self.now_ms)

    @rule()
    def the_keeper_retires(self) -> None:
        done = self.device.replaced
        self.active -= done
        self.device = retired(self.device, done)

    @rule()
    def the_operator_quarantines(self) -> None:
        self.device = quarantined(self.device, frozenset(self.active), "", self.now_ms)
        self.active -= self.device.suspended

    @rule()
    def the_operator_releases(self) -> None:
        self.device = released(self.device, self.now_ms)
        self.active |= self.device.suspended - self.device.replaced
        self.device = reactivated(self.device, self.device.suspended)

    @precondition(lambda self: self.device.state is LifecycleState.PROVISIONED)
    @rule(
        client_id=st.sampled_from(["claim-home", "renewal-home", "home", ""]),
        asking=st.sampled_from(["claim", ""]),
    )
    def a_thief_asks(self, client_id: str, asking: str) -> None:
        assert self.ask(client_id, asking) is None

    @invariant()
    def a_device_in_service_can_connect(self) -> None:
        if self.device.state is LifecycleState.PROVISIONED:
            assert self.own in self.active

    @invariant()
    def what_is_active_is_known(self) -> None:
        device = self.device
        assert self.active <= device.certificates
        assert device.certificates - device.replaced - device.suspended <= self.active

    @invariant()
    def a_quarantined_device_cannot_connect(self) -> None:
        if self.device.state is LifecycleState.QUARANTINED:
            assert not self.active


TestLife = Life.TestCase


@given(devices, numbers)
def test_a_decommissioned_device_gets_nothing(device: Device, now_ms: int) -> None:
    gone = decommissioned(device, "", now_ms)
    for client_id in (f"claim-{device.thing}", f"renewal-{device.thing}"):
        for asking in {*device.certificates, "claim"}:
            with pytest.raises(RefusedError):
                registered(gone, RegistrationRequest(device.thing, client_id, asking, "new"), now_ms)
