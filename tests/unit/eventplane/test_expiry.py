"""When an event is no longer worth delivering."""

import pytest

from eventplane.contract import Channel, compile_contract
from eventplane.envelope import write_event
from eventplane.guarantee import BY_CHANNEL, BY_EVENT, is_expired, is_expired_on_device, why_expired


@pytest.mark.source("C4")
def test_an_event_expires_at_its_expirytime_and_not_before() -> None:
    event = write_event({"id": "1", "source": "/a", "type": "t", "expirytime": "1970-01-01T00:00:01Z"})
    assert not is_expired(event, 999)
    assert is_expired(event, 1_000)


def test_an_event_without_expirytime_never_expires() -> None:
    assert not is_expired(write_event({"id": "1", "source": "/a", "type": "t"}), 2**62)


HOUR_MS = 3_600_000
NOON_MS = 1_893_499_200_000


@pytest.mark.source("C4")
@pytest.mark.parametrize(
    ("time", "expirytime", "uptime_ms", "expired"),
    [
        ("2030-01-01T11:30:00Z", "2030-01-01T12:00:00Z", HOUR_MS, True),
        ("2030-01-01T11:30:00Z", "2030-01-01T12:00:00.001Z", HOUR_MS, False),
        ("2030-01-01T11:00:00Z", "2030-01-01T12:00:00Z", HOUR_MS, True),
        ("2030-01-01T10:59:59Z", "2030-01-01T12:00:00Z", HOUR_MS, False),  # it may have been switched off
        ("1970-01-01T00:01:00Z", "1970-01-01T00:11:00Z", HOUR_MS, False),  # written before the clock was set
        (None, "2030-01-01T11:59:00Z", HOUR_MS, False),
        ("2030-01-01T11:30:00Z", None, HOUR_MS, False),
        ("2030-01-01T13:00:00Z", "2030-01-01T12:00:00Z", HOUR_MS, True),  # over before it began
    ],
)
def test_on_a_device_only_what_was_written_since_it_started_can_have_expired(
    time: str | None, expirytime: str | None, uptime_ms: int, expired: bool
) -> None:
    given = {name: text for name, text in (("time", time), ("expirytime", expirytime)) if text}
    event = write_event({"id": "1", "source": "/a", "type": "t", **given})
    assert is_expired_on_device(event, NOON_MS, uptime_ms) is expired


def inbox(expiry_s: int | None) -> Channel:
    channel = compile_contract(
        {
            "format": 2,
            "name": "small",
            "participants": {
                "device": {"kind": "device", "description": "d"},
                "desk": {
                    "kind": "cloud_service",
                    "description": "d",
                    "inbox": {} if expiry_s is None else {"expiry_s": expiry_s},
                },
            },
            "event_types": {},
            "routes": {"up": {"filter": {"exact": {"type": "t"}}, "to": "desk.inbox"}},
        },
        "test",
    ).channel("desk.inbox")
    assert channel.expiry_s == expiry_s
    return channel


@pytest.mark.parametrize(
    ("bounds", "age_ms", "expected"),
    [
        ((None,), 2**40, None),
        ((10,), 9_999, None),
        ((10,), 10_000, BY_CHANNEL),
        ((None, 20, 10), 10_000, BY_CHANNEL),
        ((20, None), 10_000, None),
        ((), 10_000, None),
    ],
)
def test_the_strictest_channel_counts_from_acceptance(
    bounds: tuple[int | None, ...], age_ms: int, expected: str | None
) -> None:
    event = write_event({"id": "1", "source": "/a", "type": "t"})
    accepted = 1_767_225_600_000
    assert why_expired(event, accepted + age_ms, accepted, *map(inbox, bounds)) == expected


@pytest.mark.source("C4")
def test_what_the_event_says_of_itself_goes_first() -> None:
    event = write_event({"id": "1", "source": "/a", "type": "t", "expirytime": "1970-01-01T00:00:01Z"})
    assert why_expired(event, 100_000, 0, inbox(10)) == BY_EVENT
    assert why_expired(event, 999, 0, inbox(10)) is None
