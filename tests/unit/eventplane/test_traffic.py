"""Which devices of a batch are loud."""

from dataclasses import replace

import pytest

from eventplane.settings import WrongValueError
from eventplane.traffic import MAX_SENDERS, Frame, Quota, Traffic, loudest

QUOTA = Quota(window_s=100, frames=1_000, events=10_000, bytes=1_000_000)
START = 100_000_000


def sent(device: str, frames: int, over_ms: int, *, events: int = 1, size: int = 100) -> list[Frame]:
    """Publishes at an even pace."""
    return [Frame(device, START + over_ms * at // frames, events, size) for at in range(frames)]


def test_only_loud_devices_are_reported() -> None:
    quiet = [each for number in range(400) for each in sent(f"home-{number}", 4, 1_000)]
    loud = sent("home-x", 100, 10_000)
    assert dict(loudest([*quiet, *loud], QUOTA)) == {"home-x": Traffic(START // 100_000, 100, 100, 10_000)}


@pytest.mark.parametrize(
    ("publishes", "is_loud"),
    [
        (sent("a", 7, 1_000), True),
        (sent("a", 1, 1_000, events=60), True),
        (sent("a", 1, 1_000, size=6_000), True),
        (sent("a", 600, 100_000), True),
        ([], False),
        (sent("a", 5, 1_000), False),
        (sent("a", 1, 1_000, events=50, size=5_000), False),
        (sent("a", 400, 100_000), False),
    ],
)
def test_a_pace_beyond_half_of_the_quota_is_reported(publishes: list[Frame], is_loud: bool) -> None:
    assert [device for device, _ in loudest(publishes, QUOTA)] == ["a"] * is_loud


def test_of_many_loud_devices_the_loudest_are_reported() -> None:
    publishes = [each for number in range(30) for each in sent(f"home-{number}", 10 + number, 1_000)]
    assert [device for device, _ in loudest(publishes, QUOTA)] == [
        f"home-{number}" for number in range(29, 29 - MAX_SENDERS, -1)
    ]


def test_a_quota_without_room_is_refused() -> None:
    with pytest.raises(WrongValueError, match="frames is 0"):
        replace(QUOTA, frames=0)
