"""One run: homes under load while things break, then the counts of both ends and the audit."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any

from contract import load_contract
from eventplane.contract import Contract
from eventplane.ordering import is_numbered
from local.audits import run_audits
from local.chaos.alarms import Watched
from local.chaos.arrivals import Arrivals
from local.chaos.cloud import Cloud
from local.chaos.counters import Times
from local.chaos.disk import DISK, small_disk
from local.chaos.drain import in_homes, missing, wait_until_nothing_waits
from local.chaos.given_up import given_up, not_stored, sent_again
from local.chaos.injector import Injector, Struck
from local.chaos.kinds import faults_of
from local.chaos.load import Sender, TimedLog
from local.chaos.messages import Messages
from local.chaos.probe import Probe, Sample
from local.chaos.restarter import Restarter
from local.chaos.scenario import Scenario
from local.chaos.schedule import ScheduleError, chosen
from local.home import BROKER_CONNECTED, Home, start_home
from local.network import Network
from local.oracle import Verdict, dead_lettered, expected_by_service, judge
from local.process import End, Supervisor
from local.sent import Key
from local.services import (
    CALL_SERVICE,
    LISTENERS,
    ON_DEVICE,
    arrived_at_call_services,
    arrived_in_homes,
)


@dataclass(frozen=True)
class Outcome:
    """Everything that a run found.

    `given_up` counts by home what the device says it discarded, `not_stored` by reason what it gave up from
    memory on its way to the cloud, `sent_again` what the cloud accepted more than once. `arrivals` by cloud
    service; `called` has
    when the home's call-service placed the call for each alarm. `ended` has the processes that nobody had
    killed. `ordered` are the services whose inboxes keep an order. `watched` are the plane's own alarms.
    `send_s` and `drain_s`: how long the homes sent, and how long then until everything stood still, which
    some of it may have done with work left (`gave_up_waiting_for`).
    """

    verdicts: Sequence[Verdict]
    dead_letters: int
    audit: Mapping[str, Any]
    given_up: Counter[str]
    sent: TimedLog
    arrivals: Mapping[str, Arrivals]
    called: Times
    struck: Sequence[Struck]
    samples: Sequence[Sample]
    send_s: float
    drain_s: float
    gave_up_waiting_for: Sequence[str]
    contract_version: str
    cloud: str
    ended: Sequence[End] = ()
    ordered: Collection[str] = ()
    watched: Watched | None = None
    sent_again: int = 0
    not_stored: Counter[str] = field(default_factory=Counter)


def run(scenario: Scenario, seed: int, output: Path, kinds: Sequence[str] = ()) -> Outcome:
    """Play `scenario` with faults as `seed` says: of `kinds`, or of all that can be made here.

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
            _home(stack, supervisor, network, cloud, contract, scenario, f"home-{number + 1}")
            for number in range(scenario.homes)
        ]
        children = [*cloud.children, *(child for home in homes for child in home.children)]
        restarter = stack.enter_context(Restarter(children))
        senders = {
            home.name: stack.enter_context(Sender(home.name, home.broker.port, contract, sent, scenario.load))
            for home in homes
        }
        faults = faults_of(cloud, homes, senders)
        kinds = chosen(kinds or scenario.kinds, {kind for kind, _ in faults})
        strikes = scenario.plan(seed, kinds, scenario.homes, scenario.seconds)
        for sender in senders.values():
            sender.greet()
        if scenario.tells:
            cloud.wait_for(list(senders))
            _wait_for_greetings(cloud, sent, homes)
        with Probe(homes) as probe, Injector(strikes, list(senders), faults) as injector:
            began = monotonic()
            with Messages(contract, list(senders), cloud.tell, sent) if scenario.tells else nullcontext():
                _play(senders.values(), injector, ends_with_load=scenario.ends_with_load)
            if not injector.struck:
                raise ScheduleError("no fault struck before the sending was over: send more events")
            sent_at = monotonic()
            drained = {"homes": wait_until_nothing_waits(lambda: in_homes(homes, senders.values()))}
        arrivals = _arrivals(cloud, sent, homes, list(senders.values()), drained)
        drained_at = monotonic()
        arrived = {name: each.arrived for name, each in arrivals.items()}
        arrived[CALL_SERVICE] = arrived_at_call_services(senders.values())
        for name in LISTENERS:
            arrived[name] = arrived_in_homes(each.told[name] for each in senders.values())
        watched = cloud.watched()
        archive = cloud.fetch_archive()
        return Outcome(
            verdicts=judge(_expected(contract, sent, homes), arrived),
            dead_letters=dead_lettered(sent.malformed, arrived),
            audit=run_audits(supervisor, {archive: output / "audit"})[0],
            given_up=given_up(archive, contract.device.outbox.address),
            sent=sent,
            arrivals=arrivals,
            called=_called(senders.values()),
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
            not_stored=not_stored(archive, contract.device.outbox.address),
        )


def _home(
    stack: ExitStack,
    supervisor: Supervisor,
    network: Network,
    cloud: Cloud,
    contract: Contract,
    scenario: Scenario,
    name: str,
) -> Home:
    directory = scenario.machine.folder(supervisor.run_dir, name)
    disk = stack.enter_context(small_disk(directory / DISK, scenario.disk_mib))
    thing = cloud.thing(name, directory)
    home = start_home(
        supervisor,
        network,
        thing,
        contract,
        cloud.rule,
        scenario.machine,
        directory,
        disk=disk,
        has_own_clock=True,
        ready=BROKER_CONNECTED,
    )
    stack.callback(home.forwarder.stop)  # before its disk goes
    return home


def _play(senders: Collection[Sender], injector: Injector, *, ends_with_load: bool) -> None:
    """Send the whole load, and wait for the last fault's end."""
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
                sender.close()  # one that waits for room would keep us waiting as well
            raise
        finally:
            ending.set()


def _wait_for_greetings(cloud: Cloud, sent: TimedLog, homes: Sequence[Home]) -> None:
    """Return when what was sent so far has arrived: no function of the way begins cold in a fault then."""
    expected = {name: len(keys) for name, keys in _expected(cloud.contract, sent, homes).items()}
    arrivals = {name: cloud.arrivals(name) for name in expected if name not in ON_DEVICE}
    wait_until_nothing_waits(lambda: missing(arrivals, expected), cloud.patience_s)


def _arrivals(
    cloud: Cloud,
    sent: TimedLog,
    homes: Sequence[Home],
    senders: Sequence[Sender],
    drained: dict[str, bool],
) -> dict[str, Arrivals]:
    """What every cloud service got, once all that is expected is there and nothing more can come.

    Notes in `drained` what was waited for, and whether it came.
    """
    expected = {name: len(keys) for name, keys in _expected(cloud.contract, sent, homes).items()}
    services = [name for name in expected if name not in ON_DEVICE]
    down = sum(expected.get(name, 0) for name in LISTENERS)
    arrivals = {name: cloud.arrivals(name) for name in services}

    def owed() -> int:
        number = missing(arrivals, expected)
        return 0 if number and cloud.is_idle() else number

    drained["arrivals"] = wait_until_nothing_waits(owed, cloud.patience_s)
    drained["told"] = wait_until_nothing_waits(
        lambda: down - sum(len(told) for each in senders for told in each.told.values()), cloud.patience_s
    )
    # Homes acknowledge what came down by events of their own.
    drained["answers"] = wait_until_nothing_waits(lambda: in_homes(homes, senders))
    for home in homes:
        home.forwarder.stop()
    drained["queues"] = cloud.settle()
    for each in arrivals.values():
        each.refresh()
    return arrivals


def _expected(contract: Contract, sent: TimedLog, homes: Sequence[Home]) -> dict[str, set[Key]]:
    return expected_by_service(contract, sent.events, sent.malformed, [home.name for home in homes])


def _called(senders: Collection[Sender]) -> dict[Key, float]:
    return {
        key: datetime.fromisoformat(str(call.attributes["time"])).timestamp()
        for sender in senders
        for key, call in sender.call_service.alarms.items()
    }
