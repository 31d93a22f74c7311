"""Who may have a certificate, by what the registry knows and what IoT Core saw."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eventplane.device_record import REGISTRY, Candidate, Device, LifecycleState
from eventplane_aws.rules import DYNAMODB_ITEM
from lab.aws_requests import item_bytes
from parts.fleet.lifecycle import (
    MAX_CANDIDATES,
    MAX_CONDEMNED,
    MAX_FORMER,
    MAX_HOLDERS_A_DAY,
    MAX_REGISTRATIONS_A_DAY,
    MAX_SURPLUS,
    DeniedError,
    DeviceNameError,
    LifecycleError,
    RegistrationRefusal,
    RegistrationRequest,
    UnknownCertificateError,
    condemned,
    decommissioned,
    grouped,
    is_early,
    locked_out,
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


@pytest.mark.long
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
        except DeniedError:
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


TestLife = pytest.mark.long(Life.TestCase)
TestTheft = pytest.mark.long(Theft.TestCase)


@pytest.mark.long
@given(devices, numbers)
def test_a_decommissioned_device_gets_nothing(device: Device, now_ms: int) -> None:
    gone = decommissioned(device, "", now_ms)
    for client_id in (f"claim-{device.thing}", f"renewal-{device.thing}"):
        for asking in {*device.certificates, "claim"}:
            with pytest.raises(DeniedError):
                registered(gone, RegistrationRequest(device.thing, client_id, asking, "new"), now_ms)


NOW_MS = 1_767_225_600_000
DAY_MS = 86_400_000
NEW = made("home-1", NOW_MS)
IN_SERVICE = replace(NEW, state=LifecycleState.PROVISIONED, certificate="a", certificate_since_ms=NOW_MS)


def by_claim(offered: str, thing: str = "home-1") -> RegistrationRequest:
    return RegistrationRequest(thing, f"claim-{thing}", "the claim's", offered)


def by_itself(offered: str, asking: str) -> RegistrationRequest:
    return RegistrationRequest("home-1", "renewal-home-1", asking, offered)


def refusal(
    device: Device | None, application: RegistrationRequest, now_ms: int = NOW_MS
) -> RegistrationRefusal:
    with pytest.raises(DeniedError) as caught:
        registered(device, application, now_ms)
    assert caught.value.thing == application.thing
    return caught.value.refusal


def test_a_made_device_comes_into_service() -> None:
    asked = registered(NEW, by_claim("a"), NOW_MS)
    assert (asked.state, asked.certificate, asked.pending) == (LifecycleState.MADE, None, ("a",))
    used = seen(asked, "a", NOW_MS + 1)
    assert (used.state, used.certificate, used.pending) == (LifecycleState.PROVISIONED, "a", ())
    assert (used.registrations, used.changed_at_ms) == (1, NOW_MS + 1)


def test_an_answer_that_was_lost_is_asked_for_again() -> None:
    first = registered(NEW, by_claim("a"), NOW_MS)
    assert registered(first, by_claim("a"), NOW_MS + 1) == first
    second = registered(first, by_claim("b"), NOW_MS)
    assert (second.pending, second.replaced) == (("a", "b"), frozenset())
    assert registered(second, by_claim("a"), NOW_MS) == second


CONDEMNED = condemned(IN_SERVICE, frozenset({"a"}), NOW_MS)
QUARANTINED = quarantined(IN_SERVICE, frozenset({"a"}), "it floods", NOW_MS)
ALLOWED = replaceable(QUARANTINED, NOW_MS + DAY_MS, NOW_MS)
UNKNOWN, FOREIGN = RegistrationRefusal.UNKNOWN, RegistrationRefusal.FOREIGN_CERTIFICATE
WRONG, ENDED = RegistrationRefusal.WRONG_CLIENT, RegistrationRefusal.DECOMMISSIONED


@pytest.mark.parametrize(
    ("device", "application", "reason"),
    [
        (None, by_claim("a"), UNKNOWN),
        (None, by_itself("b", "a"), UNKNOWN),
        (decommissioned(IN_SERVICE, "", NOW_MS), by_itself("b", "a"), ENDED),
        (decommissioned(NEW, "", NOW_MS), by_claim("a"), ENDED),
        (ALLOWED, by_itself("b", "a"), RegistrationRefusal.QUARANTINED),
        (ALLOWED, by_claim("b"), RegistrationRefusal.QUARANTINED),
        (IN_SERVICE, by_claim("b"), RegistrationRefusal.TAKEN),
        (replace(IN_SERVICE, replacement_until_ms=NOW_MS), by_claim("b"), RegistrationRefusal.TAKEN),
        (IN_SERVICE, by_itself("b", "another's"), FOREIGN),
        (replace(IN_SERVICE, replaced=frozenset("z")), by_itself("b", "z"), FOREIGN),
        (NEW, by_itself("b", ""), FOREIGN),
        (CONDEMNED, by_itself("b", "a"), RegistrationRefusal.CONDEMNED),
        (condemned(NEW, frozenset({"b"}), NOW_MS), by_claim("b"), RegistrationRefusal.CONDEMNED),
        (NEW, RegistrationRequest("home-1", "claim-home-2", "the claim's", "a"), WRONG),
        (NEW, RegistrationRequest("home-1", "home-1", "the claim's", "a"), WRONG),
        (IN_SERVICE, RegistrationRequest("home-1", "renewal-home-2", "a", "b"), WRONG),
    ],
)
def test_a_registration_is_refused_with_its_reason(
    device: Device | None, application: RegistrationRequest, reason: RegistrationRefusal
) -> None:
    assert refusal(device, application) is reason


def test_a_device_renews_with_what_it_has_or_was_just_given() -> None:
    renewed = registered(IN_SERVICE, by_itself("b", "a"), NOW_MS)
    assert (renewed.certificate, renewed.pending, renewed.replaced) == ("a", ("b",), frozenset())
    assert seen(renewed, "a", NOW_MS + 1) == renewed
    again = registered(renewed, by_itself("c", "b"), NOW_MS)
    assert (again.certificate, again.pending, again.replaced) == ("b", ("c",), {"a"})


def test_the_one_seen_is_in_use() -> None:
    asked = registered(registered(IN_SERVICE, by_itself("b", "a"), NOW_MS), by_itself("c", "a"), NOW_MS)
    for first, second in (("b", "c"), ("c", "b")):
        # The device does not know of the first connection, and tries the other.
        unknown = seen(asked, first, NOW_MS)
        known = seen(unknown, second, NOW_MS)
        assert (unknown.certificate, unknown.replaced) == (first, {"a", second})
        assert (known.certificate, known.replaced) == (second, {"a", first})
        after = retired(unknown, unknown.replaced)
        assert (after.pending, after.former) == ((), tuple(sorted({"a", second})))
        assert seen(after, second, NOW_MS) == after


def test_a_claim_unseats_nobody() -> None:
    first = registered(NEW, by_claim("a"), NOW_MS)
    both = registered(first, by_claim("thief's"), NOW_MS)
    used = seen(both, "a", NOW_MS)
    # At once: there is no grace period in which it might connect.
    assert used.replaced & used.condemned == {"thief's"}
    assert seen(used, "thief's", NOW_MS).certificate == "a"
    # Nor by many, on as many days as it likes.
    crowd = first
    for number in range(3 * MAX_REGISTRATIONS_A_DAY):
        day = 1 + number // MAX_REGISTRATIONS_A_DAY
        crowd = registered(crowd, by_claim(f"t{number}"), NOW_MS + day * DAY_MS)
    assert (crowd.pending[0], len(crowd.pending)) == ("a", MAX_CANDIDATES)
    assert seen(crowd, "a", NOW_MS).condemned == {*crowd.pending} - {"a"}


def test_a_replacement_is_allowed_until_the_new_one_was_seen() -> None:
    allowed = replaceable(IN_SERVICE, NOW_MS + DAY_MS, NOW_MS)
    asked = registered(registered(allowed, by_claim("b"), NOW_MS), by_claim("c"), NOW_MS)
    used = seen(asked, "c", NOW_MS)
    assert (used.certificate, used.replaced, used.condemned) == ("c", {"a", "b"}, {"b"})
    assert refusal(used, by_claim("d")) is RegistrationRefusal.TAKEN
    # A renewal does not use it up: it may be a thief's.
    renewed = seen(registered(asked, by_itself("thief's", "a"), NOW_MS), "thief's", NOW_MS)
    assert seen(renewed, "c", NOW_MS).certificate == "c"
    # Nor does a quarantine.
    assert registered(released(ALLOWED, NOW_MS), by_claim("b"), NOW_MS).pending == ("b",)


def test_registrations_a_day_are_bounded() -> None:
    device = NEW
    for number in range(MAX_REGISTRATIONS_A_DAY):
        device = registered(device, by_claim(f"c{number}"), NOW_MS)
    assert refusal(device, by_claim("one more")) is RegistrationRefusal.TOO_OFTEN
    assert registered(device, by_claim("tomorrow"), NOW_MS + DAY_MS).asked == ("claim",)
    # No holder of one certificate uses up the day of another's.
    chain = registered(device, by_itself("d0", "c0"), NOW_MS)
    for number in range(MAX_HOLDERS_A_DAY - 2):
        chain = registered(chain, by_itself(f"d{number + 1}", f"d{number}"), NOW_MS)
    last = chain.pending[-1]
    assert refusal(chain, by_itself("e", last)) is RegistrationRefusal.TOO_OFTEN
    back = recovered(chain, frozenset(), None, NOW_MS + DAY_MS, NOW_MS)
    assert registered(back, by_claim("true"), NOW_MS).pending == ("true",)


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("is_recovered", [False, True])
def test_a_thief_uses_up_nothing(is_recovered: bool, is_first: bool) -> None:
    until_ms = NOW_MS + DAY_MS
    device = replaceable(IN_SERVICE, until_ms, NOW_MS)
    if is_recovered:
        device = recovered(IN_SERVICE, frozenset(), None, until_ms, NOW_MS)
    flood = [f"t{number}" for number in range(MAX_SURPLUS // 2)]
    for each in ["true", *flood] if is_first else [*flood, "true", *(f"u{each}" for each in flood[1:])]:
        device = registered(device, by_claim(each), NOW_MS)
    if not is_recovered:  # by its own key it may renew as ever
        assert registered(device, by_itself("b", "a"), NOW_MS).pending[-1] == "b"
    back = seen(device, "true", NOW_MS)
    assert (back.certificate, back.pending) == ("true", ())
    assert back.certificates - {"true"} <= back.replaced
    assert len(back.condemned - device.condemned) <= MAX_CANDIDATES
    assert refusal(back, by_claim("late")) is RegistrationRefusal.TAKEN


def test_a_thiefs_registrations_are_bounded() -> None:
    device = recovered(IN_SERVICE, frozenset(), None, NOW_MS + DAY_MS, NOW_MS)
    for number in range(MAX_SURPLUS + MAX_CANDIDATES):
        device = registered(device, by_claim(f"{number:064x}"), NOW_MS)
    assert refusal(device, by_claim("true")) is RegistrationRefusal.TOO_OFTEN
    assert item_bytes(REGISTRY.to_item(device)) < DYNAMODB_ITEM.most // 2
    again = recovered(device, frozenset(device.pending), None, NOW_MS + DAY_MS, NOW_MS)
    assert {*device.pending} <= again.replaced
    ended = retired(device, frozenset(device.surplus[-1:]))
    assert "true" in registered(ended, by_claim("true"), NOW_MS).pending


def test_a_decommissioned_device_stays_so() -> None:
    gone = decommissioned(replaceable(IN_SERVICE, NOW_MS + DAY_MS, NOW_MS), "returned", NOW_MS + 1)
    assert (gone.state, gone.reason, gone.replacement_until_ms) == (
        LifecycleState.DECOMMISSIONED,
        "returned",
        0,
    )
    assert decommissioned(gone, "another reason", NOW_MS + 2) == gone
    asked = decommissioned(registered(IN_SERVICE, by_itself("b", "a"), NOW_MS), "", NOW_MS)
    assert seen(asked, "b", NOW_MS) == asked
    for step in (
        lambda: replaceable(NEW, NOW_MS + DAY_MS, NOW_MS),
        lambda: replaceable(gone, NOW_MS + DAY_MS, NOW_MS),
        lambda: condemned(gone, frozenset({"a"}), NOW_MS),
        lambda: recovered(gone, frozenset(), None, NOW_MS, NOW_MS),
    ):
        with pytest.raises(LifecycleError):
            step()


@pytest.mark.parametrize("name", ["", "a/b", "a+b", "#", "claim-1", "renewal-1", "x" * 121, "a\n", "\xe4"])
def test_a_malformed_device_name_is_refused(name: str) -> None:
    with pytest.raises(DeviceNameError) as caught:
        made(name, NOW_MS)
    assert caught.value.name == name


def test_a_quarantine_is_undone_by_its_release() -> None:
    again = quarantined(QUARANTINED, frozenset({"b"}), "another reason", NOW_MS + 1)
    assert (again.reason, again.changed_at_ms, again.suspended) == ("it floods", NOW_MS, {"a", "b"})
    free = released(again, NOW_MS)
    assert reactivated(free, free.suspended) == IN_SERVICE
    assert released(IN_SERVICE, NOW_MS + 1) == IN_SERVICE
    assert released(quarantined(NEW, frozenset(), "", NOW_MS), NOW_MS).state is LifecycleState.MADE


def test_a_device_is_in_its_state_since_it_came_into_it() -> None:
    day = NOW_MS + DAY_MS
    used = seen(registered(NEW, by_claim("a"), NOW_MS + 1), "a", NOW_MS + 2)
    assert used.since_ms == NOW_MS + 2
    # A renewal and a change of groups are none of the state.
    renewed = seen(registered(used, by_itself("b", "a"), day), "b", day)
    assert grouped(renewed, frozenset({"night"}), day).since_ms == NOW_MS + 2
    out = quarantined(renewed, frozenset({"b"}), "it floods", day)
    assert quarantined(out, frozenset(), "again", day + 1).since_ms == day
    assert released(out, day + 2).since_ms == day + 2
    gone = decommissioned(renewed, "returned", day)
    assert decommissioned(gone, "returned", day + 1).since_ms == day


def test_only_own_certificates_come_back() -> None:
    asked = registered(registered(IN_SERVICE, by_itself("b", "a"), NOW_MS), by_itself("bad", "a"), NOW_MS)
    pending = condemned(quarantined(asked, frozenset({"a", "bad"}), "", NOW_MS), frozenset({"bad"}), NOW_MS)
    assert locked_out(pending, "b").suspended == {"a", "b"}
    assert locked_out(pending, "bad").suspended == {"a"}
    assert quarantined(pending, frozenset({"bad"}), "", NOW_MS) == pending
    assert seen(pending, "b", NOW_MS) == pending
    assert locked_out(pending, "retired long ago") == pending
    assert locked_out(IN_SERVICE, "a") == IN_SERVICE


def test_an_ended_certificate_stays_inactive() -> None:
    replaced = replace(IN_SERVICE, replaced=frozenset({"old", "x"}))
    device = quarantined(replaced, frozenset({"a", "old"}), "", NOW_MS)
    after = retired(device, frozenset({"old"}))
    assert (after.suspended, after.replaced) == ({"a"}, {"x"})


def test_quarantine_allows_decommissioning() -> None:
    device = quarantined(IN_SERVICE, frozenset({"a", "by hand"}), "", NOW_MS)
    assert decommissioned(device, "stolen", NOW_MS).certificates == {"a", "by hand"}
    with pytest.raises(LifecycleError):
        quarantined(decommissioned(device, "", NOW_MS), frozenset(), "", NOW_MS)


STOLEN = seen(registered(IN_SERVICE, by_itself("thief's", "a"), NOW_MS), "thief's", NOW_MS)


@pytest.mark.parametrize("is_retired", [False, True])
@pytest.mark.parametrize("is_quarantined", [False, True])
@pytest.mark.parametrize("keep", [None, "a"])
def test_a_thiefs_key_is_never_good(keep: str | None, is_quarantined: bool, is_retired: bool) -> None:
    device = retired(STOLEN, frozenset({"a"})) if is_retired else STOLEN
    if is_quarantined:
        device = quarantined(device, frozenset({"thief's"}), "stolen", NOW_MS)
    until_ms = NOW_MS + DAY_MS
    back = recovered(device, frozenset({"thief's", "by hand"}), keep, until_ms, NOW_MS)
    assert (back.state, back.reason, back.certificate) == (LifecycleState.PROVISIONED, "", keep)
    assert back.condemned >= {"thief's", "by hand"}
    assert (back.suspended == {keep}) if keep else (back.condemned >= {"a"})
    assert back.certificates == back.suspended
    assert (
        (refusal(back, by_claim("b")) is RegistrationRefusal.TAKEN)
        if keep
        else registered(back, by_claim("b"), NOW_MS)
    )
    assert recovered(back, frozenset(), keep, until_ms, NOW_MS) == back
    renewal = by_itself("b", "a")
    assert not (keep and is_early(registered(back, renewal, NOW_MS), renewal, NOW_MS, DAY_MS))
    later = released(quarantined(back, frozenset({"thief's"}), "", NOW_MS), NOW_MS)
    assert "thief's" not in later.suspended
    for wrong in ("thief's", "another's"):
        with pytest.raises(UnknownCertificateError, match=wrong):
            recovered(back, frozenset({wrong}) - {"another's"}, wrong, until_ms, NOW_MS)


def test_what_is_condemned_and_what_was_retired_is_bounded() -> None:
    ids = frozenset(f"{number:03}" for number in range(MAX_CONDEMNED))
    full = condemned(IN_SERVICE, ids, NOW_MS)
    assert condemned(full, frozenset({"007"}), NOW_MS + 1) == full
    with pytest.raises(LifecycleError, match="another name"):
        condemned(full, frozenset({"a"}), NOW_MS)
    assert retired(replace(IN_SERVICE, replaced=ids), ids).former == tuple(sorted(ids))[-MAX_FORMER:]
