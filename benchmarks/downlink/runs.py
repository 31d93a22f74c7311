"""What is measured with real forwarders: updates a second, latency, requests and price, and coalescing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from statistics import quantiles
from time import monotonic_ns, sleep
from typing import Final

from benchmarks.cost.prices import dollars
from benchmarks.downlink.site import Site
from benchmarks.downlink.updates import Update
from benchmarks.downlink.usage import Used
from benchmarks.results import Figure
from tests.integration.downlink import Home

MILLION: Final = 1e6
PROBES_PER_S: Final = 2
ONE_KEY_PER_S: Final = 10
"""Updates a second to one key."""

STORED: Final = "from before the sender's request until the device's acknowledgement is recorded in the table"

_KEYS = count()
_VERSIONS = count(1)


def burst(site: Site, homes: Sequence[Home], updates: int) -> list[Figure]:
    """As fast as it goes, each update to a key of its own: nothing can be coalesced."""
    mark = site.mark()
    wanted = _new_keys(homes, updates)
    began = site.send_all(wanted)
    stored = site.wait_stored(wanted)
    seconds = (max(stored.values()) - min(began.values())) / 1e9
    note = f"{updates} updates to as many keys of {len(homes)} devices that are there, sent ten a request"
    rate = Figure("updates", updates / seconds, "updates/s", note=f"{note}; until the last is stored")
    return [rate, *_bill("burst", site.used(mark), updates, note)]


def single(site: Site, homes: Sequence[Home], probes: int) -> list[Figure]:
    """One update after the other, at a pace that leaves no queue."""
    mark = site.mark()
    wanted = _new_keys(homes, probes)
    began = {}
    for each in wanted:
        began[each] = site.send([each])
        sleep(1 / PROBES_PER_S)
    stored = site.wait_stored(wanted)
    cuts = quantiles(((stored[each] - began[each]) / 1e6 for each in wanted), n=100, method="inclusive")
    note = f"{probes} updates, {PROBES_PER_S}/s, to as many keys of {len(homes)} devices that are there"
    return [
        *(
            Figure(f"latency_p{at}", cuts[at - 1], "ms", higher_is_better=False, note=f"{note}; {STORED}")
            for at in (50, 99)
        ),
        *_bill("single", site.used(mark), probes, note),
    ]


def coalescing(site: Site, home: Home, seconds: float) -> list[Figure]:
    """Many updates to one key, while its device is there and while it is away."""
    mark, before = site.mark(), site.meter.transmissions
    wanted = list(_paced(site, home, seconds))
    site.wait_stored(wanted[-1:])
    present, updates = site.meter.transmissions - before, len(wanted)
    note = f"{updates} updates, {ONE_KEY_PER_S}/s, to one key"
    bill = _bill("one_key", site.used(mark), updates, f"{note} of a device that is there")
    home.forwarder.stop()
    site.until(home.name, is_present=False)
    mark, before = site.mark(), site.meter.transmissions
    wanted = list(_paced(site, home, seconds))
    site.wait_desired(wanted[-1])
    away = site.meter.transmissions - before
    home.forwarder.start()
    site.wait_stored(wanted[-1:])
    returned = site.meter.transmissions - before
    site.settle(mark)
    note += "; would be 1 without coalescing"
    return [
        _transmissions("coalesced_present", present / updates, f"{note}; the device is there"),
        _transmissions("coalesced_away", away / updates, f"{note}; the device is away"),
        _transmissions(
            "coalesced_returned", returned / updates, f"as away, and its return: {returned} in all"
        ),
        *bill,
    ]


def _paced(site: Site, home: Home, seconds: float) -> Iterator[Update]:
    """One key's updates, sent at their pace."""
    key = f"threshold/bench/{next(_KEYS)}"
    for _ in range(round(seconds * ONE_KEY_PER_S)):
        update = Update(home.name, key, next(_VERSIONS))
        began = site.send([update])
        yield update
        sleep(max(0.0, 1 / ONE_KEY_PER_S - (monotonic_ns() - began) / 1e9))


def _new_keys(homes: Sequence[Home], number: int) -> list[Update]:
    """Updates to keys of their own, the devices in turn."""
    return [
        Update(homes[at % len(homes)].name, f"threshold/bench/{next(_KEYS)}", next(_VERSIONS))
        for at in range(number)
    ]


def _bill(name: str, used: Used, updates: int, note: str) -> list[Figure]:
    """Requests and US dollars of what was `used` for `updates`."""
    requests = sum(used.requests.values()) / updates
    cost = MILLION * dollars(used.units) / updates
    return [
        Figure(
            f"{name}_requests",
            requests,
            "requests",
            higher_is_better=False,
            note=f"an update: {_listed(used.requests, updates)}; {note}",
        ),
        Figure(
            f"{name}_cost",
            cost,
            "USD/M",
            higher_is_better=False,
            note=f"list prices; units an update: {_listed(used.units, updates)}",
        ),
    ]


def _transmissions(name: str, value: float, note: str) -> Figure:
    return Figure(name, value, "sent/update", higher_is_better=False, note=note)


def _listed(numbers: dict[str, int], updates: int) -> str:
    return ", ".join(f"{name} {number / updates:.3g}" for name, number in sorted(numbers.items()))
