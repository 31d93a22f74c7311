"""Bring a plane up and keep it until it is stopped; put a changed contract in force in it."""

from __future__ import annotations

import json
import logging
import os
import queue
import shlex
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from os import urandom
from pathlib import Path
from typing import Final

from rich.console import Console

from contract import CONTRACT_FILE, load_contract
from contract.offers import Offer, offers
from contract.publish import (
    ContractPublisher,
    DestinationsNotDeployedError,
    SourceMissingError,
    find_deployment,
)
from eventplane.contract import Contract, ParticipantKind, load_compiled
from eventplane.names import OWN_SERVICES
from eventplane.topics import local_topic
from eventplane_aws.tables import DynamoDbTables
from lab.cloud import start_synthesis
from lab.control_room.server import ControlRoom
from lab.emulator import ACCOUNT, EMULATOR, REGION, start_emulator
from lab.errors import LocalError
from lab.home import Home
from lab.network import LOOPBACK, Network, free_port
from lab.plane import DownlinkSchedule, Plane, deploy_plane, snapshot_fleet, warm_up
from lab.process import Restarter, Supervisor, run_lock
from lab.up.folder import FOLDER, MARK, PlaneFolder, Running, end_leftovers
from lab.up.observer import ObservingProxy
from lab.up.plane import LocalPlane
from lab.waiting import wait_until_none_remain
from operations import system

HOME: Final = "home-1"

_EXAMPLE_FILE: Final = "example.json"
_FOREVER_S: Final = 7 * 86_400
"""Functions stay warm for so long without an event."""

_WATCH_S: Final = 2.0
_TAKEN_S: Final = 30.0
"""How long the plane may take to put a published contract in force at the home."""


class CloudEndedError(LocalError):
    """The emulated cloud ended by itself, and with it all that it held."""

    def __init__(self, log: Path) -> None:
        self.log = log
        super().__init__(f"the emulated cloud has ended by itself; see {log}, then `make up` again")


class WebhookUrlMissingError(LocalError):
    """The inboxes of `participants` are webhooks, and nothing says where their events go."""

    def __init__(self, participants: Sequence[str]) -> None:
        self.participants = participants
        super().__init__(
            f"no URL is known for the webhook of {', '.join(participants)}; start what receives the events, "
            f"and repeat the command with WEBHOOK={participants[0]}=http://127.0.0.1:PORT/PATH"
        )


class NotTakenError(LocalError):
    """The running plane did not take a published contract in `seconds`."""

    def __init__(self, version: str, seconds: float, log: Path) -> None:
        self.version, self.seconds = version, seconds
        super().__init__(
            f"contract {version} is deployed, but the home did not get it within {seconds:g} s; see {log}, "
            "or `make down` and `make up`"
        )


def up(
    folder: PlaneFolder,
    console: Console,
    contract_file: Path = CONTRACT_FILE,
    webhooks: Mapping[str, str] | None = None,
) -> None:
    """Bring the plane up with the contract of a file, and keep it until a signal ends the process.

    `webhooks` has the URL of each participant whose inbox is a webhook. Raises `RunningError` if one is up,
    `WebhookUrlMissingError`, `CloudEndedError`, and what keeps a part from starting.
    """
    contract_file, webhooks = contract_file.resolve(), dict(webhooks or {})
    with run_lock(folder.lock), ExitStack() as stack:
        began = time.monotonic()
        contract = load_contract(contract_file)
        _check_webhooks(contract, webhooks)
        if left := end_leftovers(folder):
            console.print(f"ended {left} processes that a killed plane had left")
        folder.clear()
        shutil.rmtree(folder.run, ignore_errors=True)
        stack.callback(folder.clear)
        # Clients report each fault that they notice, which would bury what is printed.
        logging.basicConfig(filename=folder.log, filemode="w", level=logging.INFO)
        os.environ[MARK] = str(folder.path)  # inherited by all that is started from here on
        supervisor = stack.enter_context(Supervisor(folder.run))
        # The handler may interrupt `get`; an Event's `set` would deadlock there, this queue's `put` does not.
        published: queue.SimpleQueue[int] = queue.SimpleQueue()
        signal.signal(signal.SIGUSR1, lambda number, _: published.put(number))
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # by nohup
            signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))  # the terminal was closed
        plane, proxy = _start_cloud(stack, supervisor, console, contract, _context(contract_file, webhooks))
        home = _start_home(stack, supervisor, plane, console)
        running = Running(
            pid=os.getpid(),
            cloud=plane.cloud,
            outputs=plane.outputs,
            contract_version=plane.contract.version,
            home=home.name,
            broker_port=home.broker.port,
            control_room="",
            contract_file=str(contract_file),
            webhooks=webhooks,
        )
        commands = partial(commands_for, folder, running)
        variables = folder.variables(running)
        seen = stack.enter_context(LocalPlane(plane, proxy, home, supervisor, variables, commands))
        stack.enter_context(DownlinkSchedule(plane.cloud))
        running = replace(running, control_room=stack.enter_context(ControlRoom(seen)).url)
        folder.contract.write_bytes(plane.contract.canonical)
        folder.write(running)
        tell(running, folder, console, time.monotonic() - began)
        _stay(folder, plane, seen, published, supervisor)


def publish(folder: PlaneFolder, console: Console, webhooks: Mapping[str, str] | None = None) -> None:
    """Put the changed contract in force in the plane that is up, with a deployment where it takes one.

    `webhooks` are added to those of the plane. Raises `NotUpError`, `RunningError` during another `publish`,
    `WebhookUrlMissingError`, `NotTakenError`, what `load_contract` and `lab.cloud.deploy` raise.
    """
    with run_lock(folder.path / "publish.lock"):
        running = folder.read()
        contract_file, cloud = Path(running.contract_file), running.cloud
        contract = load_contract(contract_file)
        urls = {**running.webhooks, **(webhooks or {})}
        _check_webhooks(contract, urls)
        is_deployed = urls == running.webhooks
        if is_deployed and contract.version == running.contract_version:
            console.print(f"contract {contract.version} is in force already: nothing has changed")
            return
        if is_deployed:
            try:
                with _step(console, "publish the contract"):
                    publisher = ContractPublisher(
                        find_deployment("local", cloud.client),
                        DynamoDbTables(cloud.client("dynamodb"), urandom),
                        system.now,
                    )
                    publisher.publish(contract)
            except (DestinationsNotDeployedError, SourceMissingError) as error:
                console.print(f"{error}: deploying", markup=False, highlight=False)
                is_deployed = False
        if not is_deployed:
            with Supervisor(folder.path / "publish") as supervisor, _step(console, "cdk deploy"):
                context = _context(contract_file, urls)
                synthesis = start_synthesis(supervisor, ACCOUNT, REGION, context=context)
                outputs = deploy_plane(supervisor, cloud, synthesis, contract).outputs
                running = replace(running, outputs=outputs, webhooks=urls)
            with _step(console, "start the new functions"):
                warm_up(cloud)
        with folder.process(running.pid) as process:  # not another plane, started since
            folder.contract.write_bytes(contract.canonical)
            folder.write(running)  # the old version, with the new outputs: the plane writes the new one
            signal.pidfd_send_signal(process, signal.SIGUSR1)
        if not wait_until_none_remain(lambda: folder.read().contract_version != contract.version, _TAKEN_S):
            raise NotTakenError(contract.version, _TAKEN_S, folder.log)
    console.print(f"contract {contract.version} is in force")


def commands_for(
    folder: PlaneFolder, running: Running, contract: Contract, known: Sequence[Offer]
) -> dict[str, str]:
    """Return commands for the plane with `contract` in force and the events in `known`, by what they do."""
    publish_, down = "make publish", "make down"
    if folder.path != FOLDER.resolve():
        own = shlex.quote(str(folder.path))
        publish_, down = (f"python -m lab.up {each} --folder {own}" for each in ("publish", "down"))
    found = {"lead commands to this plane": f"source {_relative(folder.environment)}"}
    at_home = [each for each in known if contract.participants[each.sender].kind.is_on_device]
    if at_home := [each for each in at_home if not each.problem]:
        offer, example = at_home[0], folder.path / _EXAMPLE_FILE
        example.write_text(json.dumps({"specversion": "1.0", "id": "EVENT-ID", **offer.event}))
        found[f"publish an event of {offer.type} at the home's broker"] = (
            f"sed s/EVENT-ID/$(cat /proc/sys/kernel/random/uuid)/ {_relative(example)} | "
            f"mosquitto_pub -p {running.broker_port} -q 1 -t {local_topic(offer.sender, 'outbox')} -s"
        )
    found["send an event of a file, as its participant"] = "eventplane send EVENT.json"
    services = [each for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE) if not each.inbox.webhook]
    if inboxes := [each.name for each in services if each.name not in OWN_SERVICES]:
        found["see an inbox"] = f"eventplane inbox {inboxes[0]} --follow"
    return {
        **found,
        "follow one event": "eventplane trace ID --follow",
        "audit what the plane did": "eventplane audit run all",
        f"put a changed {_relative(Path(running.contract_file))} in force": publish_,
        "end it all": down,
    }


def tell(running: Running, folder: PlaneFolder, console: Console, seconds: float | None = None) -> None:
    """Print where the plane is, and commands for it."""
    took = "" if seconds is None else f" after {seconds:.0f} s"
    contract = load_compiled(folder.contract.read_bytes(), str(folder.contract))
    commands = commands_for(folder, running, contract, offers(contract, running.home))
    lines = [
        f"the plane is up{took}: one home ({running.home}), contract {running.contract_version}",
        "",
        f"  control room      {running.control_room}",
        f"  home's Mosquitto  mqtt://{LOOPBACK}:{running.broker_port}",
        f"  AWS endpoint      {running.cloud.url} ({running.cloud.region})",
        f"  logs              {_relative(folder.run)}",
        "",
        *(f"  # {what}\n  {line}" for what, line in commands.items()),
    ]
    # A line that the terminal breaks could not be copied.
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _check_webhooks(contract: Contract, webhooks: Mapping[str, str]) -> None:
    """Check that each webhook of `contract` has its URL. Raises `WebhookUrlMissingError`."""
    names = {each.participant for each in contract.channels if each.webhook} - webhooks.keys()
    if not names:
        return
    # Only here: it loads the CDK, which takes seconds.
    from stacks.config import environment

    if missing := sorted(names - environment("local").webhook_urls.keys()):
        raise WebhookUrlMissingError(missing)


def _context(contract_file: Path, webhooks: Mapping[str, str]) -> dict[str, str]:
    """Return the contract and the endpoints as context of the CDK app."""
    return {"contract": str(contract_file), "webhooks": json.dumps(webhooks)}


def _start_cloud(
    stack: ExitStack, supervisor: Supervisor, console: Console, contract: Contract, context: Mapping[str, str]
) -> tuple[Plane, ObservingProxy]:
    port = free_port()
    proxy = stack.enter_context(ObservingProxy(f"http://{LOOPBACK}:{port}"))
    synthesis = start_synthesis(supervisor, ACCOUNT, REGION, context=context)
    with _step(console, "emulated cloud"):
        cloud = start_emulator(supervisor, port=port, functions_call=proxy.url, functions_idle_s=_FOREVER_S)
    with _step(console, "cdk deploy"):
        plane = deploy_plane(supervisor, cloud, synthesis, contract)
    plane.shorten_visibility()
    return plane, proxy


def _start_home(stack: ExitStack, supervisor: Supervisor, plane: Plane, console: Console) -> Home:
    """Start the home while the functions start."""
    with _step(console, "functions, Mosquitto, forwarder"), ThreadPoolExecutor(1) as worker:
        warming = worker.submit(warm_up, plane.cloud)
        network = stack.enter_context(Network())
        plane.register(HOME)
        home = plane.start_home(supervisor, network, HOME)
        stack.enter_context(Restarter(home.children))
        warming.result()
    return home


def _stay(
    folder: PlaneFolder,
    deployed: Plane,
    plane: LocalPlane,
    published: queue.SimpleQueue[int],
    supervisor: Supervisor,
) -> None:
    """Take each published contract, until a signal ends the process. Raises `CloudEndedError`.

    Each day the audit gets a list of the devices that there are: the local cloud runs no schedules.
    """
    listed = ""
    # Not checked by its port: a cloud busy with a deployment may accept no connection for seconds.
    while supervisor.is_running(EMULATOR):
        if listed != (today := f"{datetime.now(UTC):%Y-%m-%d}"):
            snapshot_fleet(deployed)
            listed = today
        try:
            published.get(timeout=_WATCH_S)
        except queue.Empty:
            continue
        contract = load_compiled(folder.contract.read_bytes(), str(folder.contract))
        running = folder.read()
        deployed = Plane(running.cloud, running.outputs, contract)
        plane.take_contract(deployed)
        folder.write(replace(running, contract_version=contract.version))
    raise CloudEndedError(supervisor.run_dir / f"{EMULATOR}.log")


@contextmanager
def _step(console: Console, title: str) -> Iterator[None]:
    began = time.monotonic()
    with console.status(title):
        yield
    console.print(f"  {title}: {time.monotonic() - began:.1f} s", highlight=False)


def _relative(path: Path) -> str:
    """Return `path` relative to the present folder, quoted for a shell."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
