"""One run: homes under load while faults strike, then the counts of both ends and the audit."""

import contextlib
import shutil
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import linear_regression
from time import monotonic
from typing import Any, Final, NamedTuple

from contract import load_contract
from eventplane.ordering import is_numbered
from lab.audits import run_audits
from lab.background import Background
from lab.benchmarks.processes import rss_mib
from lab.chaos.alarms import Watched
from lab.chaos.clouds import ChaosCloud
from lab.chaos.consumer import Arrivals
from lab.chaos.counters import Times, given_up, not_stored, sent_again
from lab.chaos.faults import InjectedFault, Injector, changed, faults_of, restart_storm
from lab.chaos.load import CarerMessages, LoadSender, TimedLog
from lab.chaos.scenarios import Scenario
from lab.chaos.schedule import ScheduleError, chosen
from lab.home import BROKER_CONNECTED, Home, start_home
from lab.machine import DISK, small_disk
from lab.network import Network
from lab.oracle import Key, ServiceResult, dead_lettered, expected_by_service, judge
from lab.process import ChildExit, Restarter, Supervisor
from lab.services import LISTENERS, ON_DEVICE, arrived_on_device
from lab.waiting import wait_until_none_remain

_EVERY_S: Final = 1.0
_MIB: Final = 1 << 20
_HOUR_S: Final = 3_600.0


class Tick(NamedTuple):
    """At `at_s` of the run: resident memory and spool files of the largest home, MiB."""

    at_s: float
    rss_mib: float
    spool_mib: float


class ResourceSampler(Background):
    """Samples `homes` once a second while its `with` block runs."""

    def __init__(self, homes: Sequence[Home]) -> None:
        super().__init__("probe")
        self.samples: list[Tick] = []
        self._homes = homes

    def _run(self) -> None:
        began = monotonic()
        while not self._ending.wait(_EVERY_S):
            memory = max(map(_rss_mib, self._homes))
            if memory:  # 0 while no forwarder runs
                self.samples.append(Tick(monotonic() - began, memory, max(map(_spool_mib, self._homes))))


def per_hour(samples: Sequence[Tick], part: int) -> float:
    """Return the hourly growth of field number `part`, by the line that fits the second half of `samples`.

    In the first half the processes warm up.
    """
    late = samples[len(samples) // 2 :]
    if len(late) < 2:
        return 0.0
    return linear_regression([each.at_s for each in late], [each[part] for each in late]).slope * _HOUR_S


def _rss_mib(home: Home) -> float:
    with contextlib.suppress(OSError, StopIteration):
        return rss_mib(home.forwarder.pid or 0, roughly=True)
    return 0.0


def _spool_mib(home: Home) -> float:
    sizes = []
    for path in home.spool.parent.glob(f"{home.spool.name}*"):
        with contextlib.suppress(OSError):
            sizes.append(path.stat().st_size)
    return sum(sizes) / _MIB


@dataclass(frozen=True)
class RunResult:
    """The results of a run.

    `given_up` counts by home the deliveries that its device reports as discarded, `not_stored` by reason what
    it gave up from memory, `sent_again` the events that the cloud accepted more than once. `arrivals` is
    by cloud service; `called` has when a call was placed for each alarm, `ended` the processes that ended by
    themselves, `ordered` the services whose inboxes keep an order, `watched` the plane's own alarms. `send_s`
    and `drain_s` are how long the homes sent, and how long everything took then to stand still, which some of
    it may have done with work left (`gave_up_waiting_for`).
    """

    verdicts: Sequence[ServiceResult]
    dead_letters: int
    audit: Mapping[str, Any]
    given_up: Counter[str]
    sent: TimedLog
    arrivals: Mapping[str, Arrivals]
    called: Times
    struck: Sequence[InjectedFault]
    samples: Sequence[Tick]
    send_s: float
    drain_s: float
    gave_up_waiting_for: Sequence[str]
    contract_version: str
    cloud: str
    ended: Sequence[ChildExit] = ()
    ordered: Collection[str] = ()
    watched: Watched | None = None
    sent_again: int = 0
    not_stored: Counter[str] = field(default_factory=Counter)


def run(scenario: Scenario, seed: int, output: Path, kinds: Sequence[str] = ()) -> RunResult:
    """Play `scenario` with faults by `seed`: of `kinds`, or of all that are possible.

    Raises what keeps a part from starting, `ScheduleError`, `InjectionError`, `AuditFailedError`.
    """
    shutil.rmtree(output, ignore_errors=True)
    contract = scenario.contract(load_contract())
    sent = TimedLog(contract)
    with ExitStack() as stack:
        supervisor = stack.enter_context(Supervisor(output))
        network = stack.enter_context(Network())
        cloud = scenario.cloud(supervisor, contract)
        stack.callback(cloud.close)
        homes = [
            _start_home(stack, supervisor, network, cloud, scenario, f"home-{number + 1}")
            for number in range(scenario.homes)
        ]
        children = [*cloud.children, *(child for home in homes for child in home.children)]
        restarter = stack.enter_context(Restarter(children))
        senders = [
            stack.enter_context(LoadSender(home.name, home.broker.port, contract, sent, scenario.load))
            for home in homes
        ]
        names = [home.name for home in homes]
        versions = [contract, changed(contract, "batching_delay_ms", 100)]
        in_common = cloud.faults() | {"restart-storm": restart_storm(homes)}
        faults = {
            (kind, number): fault
            for number, (home, sender) in enumerate(zip(homes, senders, strict=True))
            for kind, fault in (faults_of(home, sender, versions, cloud.put_contract) | in_common).items()
        }
        kinds = chosen(kinds or scenario.kinds, {kind for kind, _ in faults})
        strikes = scenario.plan(seed, kinds, scenario.homes, scenario.seconds)

        def expected() -> dict[str, set[Key]]:
            return expected_by_service(contract, sent.events, sent.malformed, names)

        for sender in senders:
            sender.greet()
        if scenario.tells:
            cloud.wait_for(names)
            # Then no function on the way starts cold in a fault.
            greetings = _Owed(cloud, expected())
            wait_until_none_remain(greetings.by_cloud, cloud.patience_s)
        with ResourceSampler(homes) as probe, Injector(strikes, names, faults) as injector:
            began = monotonic()
            carers = CarerMessages(contract, names, cloud.send_from_carers, sent)
            with carers if scenario.tells else nullcontext():
                _play(senders, injector, ends_with_load=scenario.ends_with_load)
            if not injector.struck:
                raise ScheduleError("no fault struck before the sending was over: send more events")
            sent_at = monotonic()
            drained = {"homes": wait_until_none_remain(lambda: _unsent(homes, senders))}
        owed = _Owed(cloud, expected())

        def coming() -> int:
            missing = owed.by_cloud()
            return 0 if missing and cloud.is_idle() else missing

        drained["arrivals"] = wait_until_none_remain(coming, cloud.patience_s)
        drained["told"] = wait_until_none_remain(lambda: owed.by_homes(senders), cloud.patience_s)
        # Homes acknowledge what they received by events of their own.
        drained["answers"] = wait_until_none_remain(lambda: _unsent(homes, senders))
        for home in homes:
            home.forwarder.stop()
        drained["queues"] = cloud.settle()
        arrivals = owed.arrivals
        for each in arrivals.values():
            each.refresh()
        drained_at = monotonic()
        arrived = {name: each.arrived for name, each in arrivals.items()} | arrived_on_device(senders)
        watched = cloud.watched()
        archive = cloud.fetch_archive()
        uplink = contract.device.outbox.address
        return RunResult(
            verdicts=judge(expected(), arrived),
            dead_letters=dead_lettered(sent.malformed, arrived),
            audit=run_audits(supervisor, {archive: output / "audit"})[0],
            given_up=given_up(archive, uplink),
            sent=sent,
            arrivals=arrivals,
            called={
                key: datetime.fromisoformat(str(call.attributes["time"])).timestamp()
                for sender in senders
                for key, call in sender.call_service.calls.items()
            },
            struck=injector.struck,
            ended=restarter.ends,
            ordered=[name for name in arrivals if is_numbered(contract, f"{name}.inbox")],
            samples=probe.samples,
            send_s=sent_at - began,
            drain_s=drained_at - sent_at,
            gave_up_waiting_for=[name for name, whole in drained.items() if not whole],
            contract_version=contract.version,
            cloud=cloud.description,
            watched=watched,
            sent_again=sent_again(archive),
            not_stored=not_stored(archive, uplink),
        )


def _start_home(
    stack: ExitStack,
    supervisor: Supervisor,
    network: Network,
    cloud: ChaosCloud,
    scenario: Scenario,
    name: str,
) -> Home:
    directory = scenario.machine.folder(supervisor.run_dir, name)
    home = start_home(
        supervisor,
        network,
        cloud.thing(name, directory),
        cloud.contract,
        cloud.rule,
        directory,
        machine=scenario.machine,
        disk=stack.enter_context(small_disk(directory / DISK, scenario.disk_mib)),
        has_own_clock=True,
        ready=BROKER_CONNECTED,
    )
    stack.callback(home.forwarder.stop)  # before its disk is unmounted
    return home


def _play(senders: Collection[LoadSender], injector: Injector, *, ends_with_load: bool) -> None:
    """Send the whole load, and wait for the end of the last fault."""
    ending = threading.Event()
    with ThreadPoolExecutor(len(senders), thread_name_prefix="load") as workers:
        try:
            playing = {workers.submit(sender.play, ending) for sender in senders}
            while playing:
                done, playing = wait(playing, 1.0, FIRST_COMPLETED)
                injector.check()
                for each in done:
                    each.result()
            injector.join(early=ends_with_load)
        except BaseException:
            for sender in senders:
                sender.close()  # ends a wait for room
            raise
        finally:
            ending.set()


def _unsent(homes: Iterable[Home], senders: Iterable[LoadSender]) -> int:
    """Return the numbers of messages without a receipt, of pending deliveries and of unreported losses."""
    return sum(each.waiting for each in senders) + sum(each.backlog + each.unreported for each in homes)


class _Owed:
    """How many of the `expected` events have not arrived yet; `arrivals` is by cloud service."""

    def __init__(self, cloud: ChaosCloud, expected: Mapping[str, Collection[Key]]) -> None:
        self._expected = {name: len(keys) for name, keys in expected.items()}
        self.arrivals = {name: cloud.arrivals(name) for name in expected if name not in ON_DEVICE}

    def by_homes(self, senders: Iterable[LoadSender]) -> int:
        """Return how many events the homes still have to receive."""
        received = sum(len(each.received[name]) for each in senders for name in LISTENERS)
        return sum(self._expected.get(name, 0) for name in LISTENERS) - received

    def by_cloud(self) -> int:
        """Return how many events the cloud's services still have to receive, by number."""
        for each in self.arrivals.values():
            each.refresh()
        return sum(max(0, self._expected[name] - len(each.first)) for name, each in self.arrivals.items())
