"""Errors of simulations, each with its remedy."""

from __future__ import annotations

from collections.abc import Sequence

from eventplane.errors import EventPlaneError


class SimulationInputError(EventPlaneError):
    """The entry at `place` in `file`, of traffic or weather, is wrong."""

    file: str
    place: str
    problem: str
    remedy: str
    message = "{file}, {place}: {problem}; {remedy}"


class UnknownWeatherError(EventPlaneError):
    """`name` is neither a file nor one of the weathers that are installed, `known`."""

    name: str
    known: Sequence[str]
    message = "there is no weather {name!r}; name a file, or one of {names}"

    @property
    def names(self) -> str:
        return ", ".join(self.known)


class TooManyEventsError(EventPlaneError):
    """The traffic comes to `events`, more than `most`."""

    events: float
    most: int
    message = (
        "that is some {events:,.0f} events, and {most:,} are the most; take fewer --homes or --days, or "
        "fewer events an hour in the traffic file"
    )


class NothingLearntError(EventPlaneError):
    """The archive has no event of a device's services on `day`."""

    archive: str
    day: str
    message = (
        "{archive} has no event that a device's service sent on {day}; name another --date, or write the "
        "traffic by hand"
    )


class SimulationError(EventPlaneError):
    """A process that simulated homes has ended by itself."""

    message = (
        "a process of the simulation has ended by itself, usually for lack of memory; repeat the "
        "command with --jobs 1"
    )
