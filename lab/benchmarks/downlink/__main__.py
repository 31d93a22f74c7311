"""`python -m lab.benchmarks.downlink`: the way down in the local cloud; writes build/bench/downlink.json.

With real forwarders: updates a second, latency, requests and price, and coalescing.
"""

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from time import monotonic_ns, sleep
from typing import Final

from eventplane_aws.prices import dollars, listed, scaled
from lab.benchmarks.cloud.plane import deployed_plane
from lab.benchmarks.cost.deployment import PricedPlane
from lab.benchmarks.downlink.site import DownlinkMeter, DownlinkSite, Update, Used
from lab.benchmarks.results import Figure, percentiles
from lab.benchmarks.runner import Benchmark
from tests.integration.downlink import Home, running_home

HOW = (
    "wall clock; emulator, functions, forwarders and meter share the machine; requests counted by the meter "
    "and in the emulator's log, functions priced for as long as they ran here; without the archive's writer"
)

MILLION: Final = 1e6
PROBES_PER_S: Final = 2
ONE_KEY_PER_S: Final = 10
"""Updates a second to one key."""

STORED: Final = "from before the sender's request until the device's acknowledgement is recorded in the table"

UNIT: Final = "sent/update"

_KEYS = count()
_VERSIONS = count(1)


def updates(options: Namespace) -> Iterator[Figure]:
    """Measure all with `options.homes` forwarders below one plane."""
    production = PricedPlane("prod")
    with ExitStack() as stack:
        run = stack.enter_context(deployed_plane())
        meter = stack.enter_context(DownlinkMeter(run.plane.cloud.url))
        site = DownlinkSite(run.plane, production, meter, run.log)
        homes: list[Home] = []
        for name in (f"bench-{number}" for number in range(options.homes)):
            run.plane.register(name)
            running = running_home(run.plane, run.supervisor, run.directory / name, name)
            homes.append(stack.enter_context(running))
            site.until(name, is_present=True)
        burst(site, homes, 20)  # for the cold starts, which are not what an average update meets
        yield from burst(site, homes, options.updates)
        yield from single(site, homes, options.probes)
        yield from coalescing(site, homes[0], options.seconds)


def burst(site: DownlinkSite, homes: Sequence[Home], updates: int) -> list[Figure]:
    """Send as fast as it goes, each update to a key of its own: nothing can be coalesced."""
    mark = site.mark()
    wanted = _new_keys(homes, updates)
    began = site.send_all(wanted)
    stored = site.wait_stored(wanted)
    seconds = (max(stored.values()) - min(began.values())) / 1e9
    note = f"{updates} updates to as many keys of {len(homes)} devices that are there, sent ten a request"
    rate = Figure("updates", updates / seconds, "updates/s", note=f"{note}; until the last is stored")
    return [rate, *_bill("burst", site.used(mark), updates, note)]


def single(site: DownlinkSite, homes: Sequence[Home], probes: int) -> list[Figure]:
    """One update after the other, at a pace that leaves no queue."""
    mark = site.mark()
    wanted = _new_keys(homes, probes)
    began = {}
    for each in wanted:
        began[each] = site.send([each])
        sleep(1 / PROBES_PER_S)
    stored = site.wait_stored(wanted)
    times = [(stored[each] - began[each]) / 1e6 for each in wanted]
    note = f"{probes} updates, {PROBES_PER_S}/s, to as many keys of {len(homes)} devices that are there"
    return [
        *percentiles("latency_{}", times, "ms", f"{note}; {STORED}"),
        *_bill("single", site.used(mark), probes, note),
    ]


def coalescing(site: DownlinkSite, home: Home, seconds: float) -> list[Figure]:
    """Many updates to one key, while its device is there and while it is away."""
    mark = site.mark()
    wanted = list(_paced(site, home, seconds))
    site.wait_stored(wanted[-1:])
    present, updates = site.transmissions(mark), len(wanted)
    note = f"{updates} updates, {ONE_KEY_PER_S}/s, to one key"
    bill = _bill("one_key", site.used(mark), updates, f"{note} of a device that is there")
    home.forwarder.stop()
    site.until(home.name, is_present=False)
    mark = site.mark()
    wanted = list(_paced(site, home, seconds))
    site.wait_desired(wanted[-1])
    away = site.transmissions(mark)
    home.forwarder.start()
    site.wait_stored(wanted[-1:])
    returned = site.transmissions(mark)
    site.settle(mark)
    note += "; would be 1 without coalescing"
    return [
        Figure("coalesced_present", present / updates, UNIT, note=f"{note}; the device is there"),
        Figure("coalesced_away", away / updates, UNIT, note=f"{note}; the device is away"),
        Figure("coalesced_returned", returned / updates, UNIT, note=f"as away, then back: {returned} in all"),
        *bill,
    ]


def _paced(site: DownlinkSite, home: Home, seconds: float) -> Iterator[Update]:
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
    by_call = ", ".join(f"{name} {number / updates:.3g}" for name, number in sorted(used.requests.items()))
    note = f"an update: {by_call}; {note}"
    priced = f"list prices; units an update: {listed(scaled(used.units, 1 / updates))}"
    return [
        Figure(f"{name}_requests", requests, "requests", note=note),
        Figure(f"{name}_cost", cost, "USD/M", note=priced),
    ]


BENCHMARK = Benchmark(
    "downlink",
    {"updates": updates},
    HOW,
    {
        "--homes": {"type": int, "default": 2, "help": "devices, a forwarder process each"},
        "--updates": {"type": int, "default": 200, "help": "of the throughput run"},
        "--probes": {"type": int, "default": 60, "help": "of the latency run"},
        "--seconds": {"type": float, "default": 20, "help": "of each coalescing run"},
    },
    notes_load=True,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
