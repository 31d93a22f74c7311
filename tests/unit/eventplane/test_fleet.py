"""Who may have a certificate, by what the registry knows and what IoT Core saw."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eventplane.fleet import (
    MAX_REGISTRATIONS_A_DAY,
    Device,
    DeviceNameError,
    LifecycleError,
    LifecycleState,
    RefusedError,
    RegistrationRefusal,
    RegistrationRequest,
    decommissioned,
    grouped,
    locked_out,
    made,
    quarantined,
    reactivated,
    registered,
    released,
    replaceable,
    retired,
    seen,
)

NOW_MS = 1_767_225_600_000
DAY_MS = 86_400_000
NEW = made("home-1", NOW_MS)
IN_SERVICE = replace(NEW, state=LifecycleState.PROVISIONED, certificate="a")


def by_claim(offered: str, thing: str = "home-1") -> RegistrationRequest:
    return RegistrationRequest(thing, f"claim-{thing}", "the claim's", offered)


def by_itself(offered: str, asking: str) -> RegistrationRequest:
    return RegistrationRequest("home-1", "renewal-home-1", asking, offered)


def refusal(
    device: Device | None, application: RegistrationRequest, now_ms: int = NOW_MS
) -> RegistrationRefusal:
    with pytest.raises(RefusedError) as caught:
        registered(device, application, now_ms)
    assert caught.value.thing == application.thing
    return caught.value.refusal


def test_a_device_that_was_made_is_registered_with_the_claim_and_in_service_when_it_was_seen() -> None:
    asked = registered(NEW, by_claim("a"), NOW_MS)
    assert (asked.state, asked.certificate, asked.pending) == (LifecycleState.MADE, None, "a")
    used = seen(asked, "a", NOW_MS + 1)
    assert (used.state, used.certificate, used.pending) == (LifecycleState.PROVISIONED, "a", None)
    assert (used.registrations, used.changed_at_ms) == (1, NOW_MS + 1)


def test_an_answer_that_was_lost_is_asked_for_again() -> None:
    first = registered(NEW, by_claim("a"), NOW_MS)
    assert registered(first, by_claim("a"), NOW_MS + 1) == first
    second = registered(first, by_claim("b"), NOW_MS)
    assert (second.pending, second.replaced) == ("b", {"a"})
    third = registered(second, by_claim("a"), NOW_MS)
    assert (third.pending, third.replaced) == ("a", {"b"})


@pytest.mark.parametrize(
    ("device", "application", "reason"),
    [
        (None, by_claim("a"), RegistrationRefusal.UNKNOWN),
        (None, by_itself("b", "a"), RegistrationRefusal.UNKNOWN),
        (decommissioned(IN_SERVICE, "", NOW_MS), by_itself("b", "a"), RegistrationRefusal.DECOMMISSIONED),
        (decommissioned(NEW, "", NOW_MS), by_claim("a"), RegistrationRefusal.DECOMMISSIONED),
        (IN_SERVICE, by_claim("b"), RegistrationRefusal.TAKEN),
        (replace(IN_SERVICE, replacement_until_ms=NOW_MS), by_claim("b"), RegistrationRefusal.TAKEN),
        (IN_SERVICE, by_itself("b", "another's"), RegistrationRefusal.FOREIGN_CERTIFICATE),
        (
            replace(IN_SERVICE, replaced=frozenset("z")),
            by_itself("b", "z"),
            RegistrationRefusal.FOREIGN_CERTIFICATE,
        ),
        (NEW, by_itself("b", ""), RegistrationRefusal.FOREIGN_CERTIFICATE),
        (
            NEW,
            RegistrationRequest("home-1", "claim-home-2", "the claim's", "a"),
            RegistrationRefusal.WRONG_CLIENT,
        ),
        (NEW, RegistrationRequest("home-1", "home-1", "the claim's", "a"), RegistrationRefusal.WRONG_CLIENT),
        (
            IN_SERVICE,
            RegistrationRequest("home-1", "renewal-home-2", "a", "b"),
            RegistrationRefusal.WRONG_CLIENT,
        ),
    ],
)
def test_a_registration_is_refused_with_its_reason(
    device: Device | None, application: RegistrationRequest, reason: RegistrationRefusal
) -> None:
    assert refusal(device, application) is reason


def test_a_device_renews_with_what_it_has_or_was_just_given() -> None:
    renewed = registered(IN_SERVICE, by_itself("b", "a"), NOW_MS)
    assert (renewed.certificate, renewed.pending, renewed.replaced) == ("a", "b", frozenset())
    again = registered(renewed, by_itself("c", "b"), NOW_MS)
    assert (again.certificate, again.pending, again.replaced) == ("b", "c", {"a"})


def test_a_replacement_is_allowed_until_the_new_one_was_seen() -> None:
    allowed = replaceable(IN_SERVICE, NOW_MS + DAY_MS, NOW_MS)
    asked = registered(registered(allowed, by_claim("b"), NOW_MS), by_claim("c"), NOW_MS)
    used = seen(asked, "c", NOW_MS)
    assert (used.certificate, used.replaced) == ("c", {"a", "b"})
    assert refusal(used, by_claim("d")) is RegistrationRefusal.TAKEN


def test_registrations_a_day_are_bounded() -> None:
    device = NEW
    for number in range(MAX_REGISTRATIONS_A_DAY):
        device = registered(device, by_claim(f"c{number}"), NOW_MS)
    assert refusal(device, by_claim("one more")) is RegistrationRefusal.TOO_OFTEN
    assert registered(device, by_claim("tomorrow"), NOW_MS + DAY_MS).registered_today == 1


def test_a_late_report_of_another_certificate_changes_nothing() -> None:
    renewed = registered(IN_SERVICE, by_itself("b", "a"), NOW_MS)
    assert seen(renewed, "a", NOW_MS + 1) == renewed


def test_a_decommissioned_device_stays_so() -> None:
    gone = decommissioned(replaceable(IN_SERVICE, NOW_MS + DAY_MS, NOW_MS), "returned", NOW_MS + 1)
    assert (gone.state, gone.reason, gone.replacement_until_ms) == (
        LifecycleState.DECOMMISSIONED,
        "returned",
        0,
    )
    assert decommissioned(gone, "another reason", NOW_MS + 2) == gone
    assert seen(replace(gone, pending="b"), "b", NOW_MS) == replace(gone, pending="b")
    with pytest.raises(LifecycleError, match="a new name"):
        replaceable(gone, NOW_MS + DAY_MS, NOW_MS)


def test_a_replacement_is_for_devices_in_service() -> None:
    with pytest.raises(LifecycleError, match="the claim registers it as it is"):
        replaceable(NEW, NOW_MS + DAY_MS, NOW_MS)


@pytest.mark.parametrize("name", ["", "a/b", "a+b", "#", "claim-1", "renewal-1", "x" * 121, "a\n", "\xe4"])
def test_a_malformed_device_name_is_refused(name: str) -> None:
    with pytest.raises(DeviceNameError) as caught:
        made(name, NOW_MS)
    assert caught.value.name == name


QUARANTINED = quarantined(IN_SERVICE, frozenset({"a"}), "it floods", NOW_MS)


@pytest.mark.parametrize("application", [by_itself("b", "a"), by_claim("b")])
def test_a_quarantined_device_gets_no_certificate(application: RegistrationRequest) -> None:
    assert refusal(QUARANTINED, application) is RegistrationRefusal.QUARANTINED
    with pytest.raises(LifecycleError, match="release it first"):
        replaceable(QUARANTINED, NOW_MS + DAY_MS, NOW_MS)


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


def test_only_the_own_certificates_of_a_quarantined_device_are_activated_again() -> None:
    pending = replace(QUARANTINED, pending="b")
    assert locked_out(pending, "b").suspended == {"a", "b"}
    assert seen(pending, "b", NOW_MS) == pending
    assert locked_out(pending, "retired long ago") == pending
    assert locked_out(IN_SERVICE, "a") == IN_SERVICE


def test_a_certificate_that_ended_during_the_quarantine_is_not_activated_again() -> None:
    replaced = replace(IN_SERVICE, replaced=frozenset({"old", "x"}))
    device = quarantined(replaced, frozenset({"a", "old"}), "", NOW_MS)
    after = retired(device, frozenset({"old"}))
    assert (after.suspended, after.replaced) == ({"a"}, {"x"})


def test_a_quarantined_device_can_be_decommissioned_with_all_its_certificates() -> None:
    device = quarantined(IN_SERVICE, frozenset({"a", "by hand"}), "", NOW_MS)
    assert decommissioned(device, "stolen", NOW_MS).certificates == {"a", "by hand"}
    with pytest.raises(LifecycleError):
        quarantined(decommissioned(device, "", NOW_MS), frozenset(), "", NOW_MS)
