"""What is held up how long: arithmetic."""

from random import Random

from local.weather import FAIR, RETRANSMISSION_S, SEGMENT_BYTES, Weather


def test_fair_weather_holds_nothing_up() -> None:
    assert FAIR.hold_s(1_000_000, Random(1)) == 0


def test_each_lost_segment_costs_a_retransmission_and_a_round_trip() -> None:
    everything_once = Weather(delay_s=0.6, loss=1.0)
    assert everything_once.hold_s(2 * SEGMENT_BYTES + 1, Random(1)) == 0.6 + 3 * (RETRANSMISSION_S + 1.2)


def test_about_as_many_segments_are_lost_as_the_weather_says() -> None:
    stall = RETRANSMISSION_S
    lost = Weather(loss=0.02).hold_s(10_000 * SEGMENT_BYTES, Random(1)) / stall
    assert 150 < lost < 250


def test_a_narrow_line_passes_a_tenth_of_a_second_at_a_time() -> None:
    assert Weather(bytes_per_s=16_000).chunk_bytes == 1_600
