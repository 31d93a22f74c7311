"""A part of a scenario is as long as was said."""

from local.chaos.scenarios import paper, singly


def test_half_of_the_seconds_is_half_of_the_load() -> None:
    whole = singly()
    half = whole.within(whole.seconds / 2, None)
    assert (half.seconds, half.load.events) == (whole.seconds / 2, whole.load.events / 2)
    assert whole.within(None, None) == whole
    assert whole.within(None, 7).load.events == 7


def test_where_the_sending_ends_the_faults_it_is_the_sending_that_lasts() -> None:
    whole = paper()
    part = whole.within(100, None)
    assert part.load.events == 100 * whole.load.per_s == whole.load.events
    assert part.seconds == whole.seconds
