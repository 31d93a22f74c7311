"""The faults of homes and of the cloud: from a file, or one of the weathers that are installed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

from eventplane.contract import Contract, ParticipantKind
from parts.simulate.errors import UnknownWeatherError
from parts.simulate.line import CLOUD_DELAY_S, SLOW_BYTES_PER_S
from parts.simulate.timeline import draws
from parts.simulate.toml_table import TomlTable, bounded, read_table
from parts.simulate.traffic import HOUR_S, MOST_PER_HOUR

MINUTE_S: Final = 60.0
_LONGEST_H: Final = 100_000.0
_MOST: Final = 1_000
"""Moments of one entry. Ours."""

WHOLE: Final = 100.0

INSTALLED: Final = Path(__file__).parent / "weathers"

AT_HOME: Final = {
    "offline": "its line is cut",
    "silent": "its line swallows what is sent, and tells neither end",
    "slow": "its line carries `bytes_per_s` up, and takes `delay_ms` each way",
    "no_power": "the device and all services are off, and send nothing",
    "crash": "its forwarder is killed",
    "disk_full": "its disk has no room",
    "flood": "a service sends `events_per_minute` of a `type`; default: the most frequent one",
}
IN_CLOUD: Final = {
    "region_down": "nothing in the region answers",
    "reader_fails": "a `reader` cannot handle what it reads; default: every one but the plane's own",
    "reader_stops": "a `reader` does not read; default: every one but the plane's own",
}
KINDS: Final = {**AT_HOME, **IN_CLOUD}
"""What can happen, and its meaning."""

Window = tuple[float, float]
"""From when, and until when, seconds."""


@dataclass(frozen=True, slots=True)
class Happening:
    """`what` happens `every_h` hours in the mean, or at each of `at_h`, for so many `minutes`, where its
    `source` has the numbers from. What is drawn lasts so long in the mean, what has a moment exactly so long;
    what is of homes meets `homes_percent` of them."""

    what: str
    source: str
    every_h: float | None
    at_h: tuple[float, ...]
    minutes: float
    homes_percent: float = WHOLE
    bytes_per_s: float = inf
    delay_s: float = CLOUD_DELAY_S
    events_per_minute: float = 0.0
    type: str = ""
    reader: str = ""

    def windows(self, seed: int, number: int, whom: str, ends_s: float) -> list[Window]:
        """Draw when it happens to `whom`, a home or the cloud; it is entry `number` of its weather."""
        random, lasts_s = draws(seed, "weather", number, whom), self.minutes * MINUTE_S
        if random.random() * WHOLE >= self.homes_percent:
            return []
        if self.every_h is None:
            return merged([(at_h * HOUR_S, at_h * HOUR_S + lasts_s) for at_h in self.at_h], ends_s)
        found: list[Window] = []
        at_s = 0.0
        while (at_s := at_s + random.expovariate(1 / (self.every_h * HOUR_S))) < ends_s:
            long_s = lasts_s if lasts_s in (0.0, inf) else random.expovariate(1 / lasts_s)
            found.append((at_s, at_s + long_s))
            at_s += long_s
        return merged(found, ends_s)


@dataclass(frozen=True, slots=True)
class Weather:
    """All that `happens`, by the file or name `name`."""

    name: str
    description: str
    happens: tuple[Happening, ...]

    def of(self, what: str, seed: int, whom: str, ends_s: float) -> Iterator[tuple[Happening, list[Window]]]:
        """Yield what happens of a kind, and when."""
        for number, each in enumerate(self.happens):
            if each.what == what:
                yield each, each.windows(seed, number, whom, ends_s)

    def when(self, what: str, seed: int, whom: str, ends_s: float) -> list[Window]:
        """Return when anything of a kind happens."""
        return merged([one for _, those in self.of(what, seed, whom, ends_s) for one in those], ends_s)


def merged(windows: list[Window], ends_s: float) -> list[Window]:
    """Return `windows` in order, those that meet as one; what begins at `ends_s` or later is left out."""
    found: list[Window] = []
    for begins_s, until_s in sorted(windows):
        if begins_s >= ends_s:
            break
        if found and begins_s <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], until_s)
        else:
            found.append((begins_s, until_s))
    return found


def installed() -> list[str]:
    """Return the names of the weathers that are installed."""
    return sorted(each.stem for each in INSTALLED.glob("*.toml"))


def weather_file(name: str) -> Path:
    """Return the file of a weather that is installed. Raises `UnknownWeatherError`."""
    if name not in installed():
        raise UnknownWeatherError(name, installed())
    return INSTALLED / f"{name}.toml"


def read_weather(named: str, contract: Contract, types: Collection[str] = ()) -> Weather:
    """Return the weather of a file, or an installed one; floods are of the `types` of the traffic.

    Raises `SimulationInputError`, `UnknownWeatherError`, `OSError`.
    """
    is_file = Path(named).suffix == ".toml" or Path(named).exists()
    top = read_table(named, bounded(Path(named) if is_file else weather_file(named)))
    entries = top.raw("happens") or []
    if not isinstance(entries, list):
        top.fault("happens", "it is no list of tables", "write [[happens]] above each entry")
    tables = [TomlTable(named, f"happens[{at}]", each) for at, each in enumerate(entries)]
    weather = Weather(
        named, top.text("description"), tuple(_happening(each, contract, types) for each in tables)
    )
    top.finish()
    return weather


def _happening(table: TomlTable, contract: Contract, types: Collection[str]) -> Happening:
    what = table.text("what")
    if what not in KINDS:
        table.fault("what", f"{what!r} is not known", f"write one of {', '.join(KINDS)}")
    source = table.text("source")
    every_h = table.number("every_h", 0.01, _LONGEST_H) if "every_h" in table.members else None
    at_h = tuple(table.numbers("at_h", 0, _LONGEST_H))
    if (every_h is None) is (not at_h) or len(at_h) > _MOST:
        remedy = (
            f"give either hours between two of them, or up to {_MOST:,} hours of the simulation in a list"
        )
        table.fault("every_h", "it or `at_h` says when this happens, and one of them only", remedy)
    more: dict[str, float | str] = {}
    if what == "slow":
        more["bytes_per_s"] = table.number("bytes_per_s", 1, 1e9, SLOW_BYTES_PER_S)
        more["delay_s"] = table.number("delay_ms", 1, 600_000, CLOUD_DELAY_S * 1_000) / 1_000
    elif what == "flood":
        more["events_per_minute"] = table.number("events_per_minute", 0, MOST_PER_HOUR / 60)
        more["type"] = type = str(table.raw("type") or "")
        if type and type not in types:
            table.fault("type", f"the traffic has no {type!r}", "name a type of the traffic file, or none")
    elif what in ("reader_fails", "reader_stops"):
        more["reader"] = reader = str(table.raw("reader") or "")
        readers = [
            each.name for each in contract.participants.values() if each.kind is ParticipantKind.CLOUD_SERVICE
        ]
        if reader and reader not in readers:
            table.fault(
                "reader", f"the contract has no cloud service {reader!r}", f"use one of {', '.join(readers)}"
            )
    found = Happening(
        what,
        source,
        every_h,
        at_h,
        table.number("minutes", 0, inf, 0.0 if what == "crash" else None),
        table.number("homes_percent", 0, WHOLE, WHOLE),
        **more,  # type: ignore[arg-type]
    )
    if what in IN_CLOUD and found.homes_percent < WHOLE:
        table.fault("homes_percent", "this happens in the cloud, for all homes", "leave it out")
    table.finish()
    return found
