"""Clocks, randomness, threads and connections come from the wiring of each program, and from nowhere else."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from eventplane_aws.tables import DynamoDbTables
from eventplane_client.dynamodb_duplicates import DynamoDbFilter
from eventplane_client.dynamodb_routes import DynamoDbInterest
from eventplane_client.outbox_order import OutboxOrder
from eventplane_client.system import SYSTEM, System
from lambdas.common.archive import Archiver
from tests.unit.contract.small import small

ROOT = Path(__file__).parents[2]
PRODUCT = (
    "contract", "edge", "eventplane", "eventplane_aws", "eventplane_client", "eventplane_mqtt", "glue_jobs",
    "lambdas", "operations", "parts", "lab/examples/nats/eventplane_nats",
)  # fmt: skip

WIRING = {
    "edge/system.py": "gives the device's processes the machine",
    "eventplane_client/system.py": "gives the client library the machine",
    "lambdas/common/system.py": "gives functions the machine",
    "operations/system.py": "gives commands the machine",
    "glue_jobs/common/system.py": "gives jobs the machine",
    "parts/provisioning/conversation.py": "waits for the answers on a real connection of its own",
    "edge/systemd.py": "speaks to the process's service manager and journal",
    "edge/health_server.py": "has the thread of a real socket; the forwarder runs without it",
    "eventplane_mqtt/connection.py": "has the thread of a real socket; whoever makes a link passes in `dial`",
    "eventplane_mqtt/dial.py": "connects a real socket, and asks the system for names in a thread",
    "eventplane_mqtt/probe.py": "waits for the answers on a real connection of its own",
    "eventplane_mqtt/mailbox.py": "joins the threads of connections and the loop, which gets a `wait`",
    "parts/discovery/dns_sd.py": "has the thread of a library that browses the network",
    "eventplane_client/connection.py": "wires the clients; programs connect in several threads",
    "parts/simulate/timeline.py": "makes generators of the seed that the caller gives",
    "parts/simulate/run.py": "waits for processes; each home's result depends on the seed alone",
    "eventplane_client/aio.py": "is the client for programs on asyncio",
    "eventplane_client/mqtt_loop.py": "has the threads of a real connection and of callbacks",
    "parts/webhooks/receiver.py": "is a program of its own, which receivers begin with",
    "parts/webhooks/endpoint.py": "has a real socket, which a timer cuts",
    "lambdas/common/metrics.py": "has a mutex around the library's global, and awaits nothing in it",
    "lambdas/router/payload.py": "asks which thread gets signals",
    "lab/examples/nats/eventplane_nats/connection.py": "has the asyncio thread of a real connection",
    "lab/examples/nats/eventplane_nats/transport.py": "runs on the asyncio of a real connection",
    "lab/examples/nats/eventplane_nats/sender.py": "runs on the asyncio of a real connection",
    "lab/examples/nats/eventplane_nats/relay.py": "is a program: it waits for signals",
}
"""The modules that may use the machine's, and why."""

MODULES = ("_thread", "asyncio", "concurrent", "random", "secrets", "threading", "time")
CALLS = ("now", "today", "utcnow", "urandom", "getrandom", "uuid1", "uuid4")
"""Of `datetime`, `date`, `os` and `uuid`."""
OWNERS = ("datetime", "date", "os", "uuid")
WORDS = re.compile(rf"\b({'|'.join((*MODULES, *OWNERS))})\b")


def uses(tree: ast.AST) -> Iterator[str]:
    """What a module takes of the machine."""
    nodes = list(ast.walk(tree))
    imports = [each for each in nodes if isinstance(each, ast.Import | ast.ImportFrom)]
    owners = {each.asname for node in imports for each in node.names if each.name in OWNERS} | {*OWNERS}
    for node in nodes:
        match node:
            case ast.Import(names):
                yield from (each.name for each in names if each.name.partition(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                if module.partition(".")[0] in MODULES:
                    yield module
                yield from (each.name for each in names if module in OWNERS and each.name in CALLS)
            case ast.Attribute(value=ast.Name(owner) | ast.Attribute(attr=owner), attr=name):
                if owner in owners and name in CALLS:
                    yield f"{owner}.{name}"
            case ast.Call(
                ast.Name("__import__") | ast.Attribute(attr="import_module"), [ast.Constant(str(name))]
            ):
                if name.partition(".")[0] in MODULES:
                    yield name


def found() -> dict[str, list[str]]:
    files = (each for package in PRODUCT for each in sorted((ROOT / package).rglob("*.py")))
    texts = {each.relative_to(ROOT).as_posix(): each.read_text() for each in files}
    trees = {name: ast.parse(text) for name, text in texts.items() if WORDS.search(text)}
    return {name: taken for name, tree in trees.items() if (taken := sorted(set(uses(tree))))}


@pytest.mark.long
def test_only_wiring_is_nondeterministic() -> None:
    taken = found()
    assert {name: each for name, each in taken.items() if name not in WIRING} == {}
    assert WIRING.keys() - taken.keys() == set(), "no longer needs to be listed"


@pytest.mark.parametrize(
    "code",
    [
        "import time", "from time import monotonic as m", "import concurrent.futures", "import random",
        "import threading as t", "import datetime as d; d.datetime.now()",
        "from datetime import datetime as d; d.now()", "import os as o; o.urandom(8)",
        "import os; os.urandom(8)", "from os import urandom", "from uuid import uuid4", "import asyncio",
        "import uuid; uuid.uuid4()", "def f():\n from secrets import token_hex", "__import__('time')",
        "from datetime import date; date.today()", "from datetime import datetime; draw = datetime.now",
    ],
)  # fmt: skip
def test_each_way_to_the_machine_is_seen(code: str) -> None:
    assert list(uses(ast.parse(code)))


def test_only_wiring_takes_the_machines_clocks() -> None:
    doors = ("edge.system", "lambdas.common.system")
    types = ("Call", "Clock", "Host", "Pool", "System", "Threads", "Uptime", "UptimeClock")
    taken: list[str] = []
    packages = ("edge", "lambdas", "parts")
    for path in sorted(each for package in packages for each in (ROOT / package).rglob("*.py")):
        name, tree = path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())
        froms = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and each.module in doors]
        given = {each.name for node in froms for each in node.names if each.name not in types}
        for node in (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)):
            own = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
            loaded = (each for each in ast.walk(node) if isinstance(each, ast.Name))
            used = {each.id for each in loaded if isinstance(each.ctx, ast.Load)} & given - own
            taken += [f"{name}: {each}" for each in used if name not in WIRING]
    assert taken == []


ORDERS = """
from eventplane.contract import Contract, load_compiled
from eventplane.interest.announcement import Announcement, with_interest
import sys
told = frozenset(Announcement(f"nobody-{each}", ()) for each in range(9))
print([each.participant for each in with_interest(load_compiled(sys.stdin.read()), told)[1]])
"""


def test_no_order_depends_on_the_hashes_of_text() -> None:
    orders = {
        subprocess.run(
            [sys.executable, "-c", ORDERS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            input=small().canonical,
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(orders) == 1


def test_nothing_is_drawn_before_its_first_use() -> None:
    system: System = replace(SYSTEM, random_bytes=Mock(side_effect=AssertionError("clones would share it")))
    DynamoDbFilter(None, "filter", "desk", lease=float, system=system)
    DynamoDbInterest(None, "interest", "desk", system=system)
    OutboxOrder(small(), "desk", system)
    Archiver(None, "archive", system.random_bytes)
    DynamoDbTables(None, system.random_bytes)
