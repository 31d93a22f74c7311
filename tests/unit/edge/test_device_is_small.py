"""What the device ships imports itself, the core and the standard library, and of that only what it needs."""

import ast
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from eventplane.contract import Contract
from lab.network import free_port
from lab.things import Authority
from lab.tools.device_image import device_closure
from parts.imports import imported, sources
from tests.packages import imported_packages
from tests.small_contract import mapped, small_contract
from tests.unit.edge.fakes import ALARM, ordered

ROOT = Path(__file__).parents[3]
DEVICE = [each for name, each in device_closure().files.items() if not name.startswith("eventplane.")]
OURS = {"edge", "eventplane", "eventplane_mqtt", "parts"}
EXTRAS = {"parts/discovery/dns_sd.py": {"zeroconf"}}
"""What a part needs that is off by default, and a program of its own."""

HEAVY = {
    "zeroconf",
    "asyncio",
    "email",
    "http",
    "multiprocessing",
    "paho",
    "subprocess",
    "unittest",
    "urllib.request",
}


def loaded(*statements: str) -> set[str]:
    """The modules in memory after a fresh interpreter, without `site`, has run `statements`."""
    program = "\n".join(["import sys", *statements, "print(*sys.modules, sep='\\n')"])
    result = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


@pytest.mark.source("P7")
@pytest.mark.parametrize("module", DEVICE, ids=lambda path: str(path.relative_to(ROOT)))
def test_it_needs_only_the_core_and_the_standard_library(module: Path) -> None:
    strangers = imported_packages(ast.parse(module.read_text())) - set(sys.stdlib_module_names) - OURS
    assert strangers == EXTRAS.get(str(module.relative_to(ROOT)), set())


ON_DEMAND = {
    "questions", "downlink", "parts", "data_budget", "sent_contract", "check",
    "health_server", "mapping", "metrics", "commands", "broker_database",
    *(f"spool.{each}" for each in ("recovery", "salvage", "log", "states")),
}  # fmt: skip
"""Modules of `edge` that only a command, a setting, the contract or an event brings into memory."""

SMALLEST = small_contract(
    {"device": {"kind": "device"}, "sensor": {"kind": "device_service"}, "app": "cloud_service"},
    {"up": ({"exact": {"type": "org.example.reading"}}, "device.outbox")},
)
"""As the smallest plane's (`lab.benchmarks.plane_size`)."""

MOST_MODULES, MOST_LINES = 64, 13_990
"""Of ours, in a forwarder that nothing asks for more. They may become fewer."""


def modules_of_forwarder(folder: Path, plane: Contract, settings: str) -> set[str]:
    """The modules that the program has imported when it is in service, with brokers that refuse it."""
    (folder / "contract.json").write_bytes(plane.canonical)
    text = f'thing = "t"\ncontract = "contract.json"\nspool = "spool.db"\n[local]\nport = 1\n{settings}'
    (folder / "edge.toml").write_text(text)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        manager.settimeout(60.0)
        program = [sys.executable, "-S", "-X", "importtime", "-m", "edge", "--settings", folder / "edge.toml"]
        environment = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify")}
        with subprocess.Popen(
            program, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
        ) as forwarder:
            while not manager.recv(4_096).startswith(b"READY=1"):
                assert forwarder.poll() is None
            forwarder.terminate()
            log = forwarder.communicate(timeout=60.0)[1]
    assert forwarder.returncode == os.EX_OK, log
    return imported(log)


@pytest.mark.source("P7", "P18")
def test_a_forwarder_loads_what_its_contract_and_settings_ask_for(tmp_path: Path) -> None:
    least = '[cloud]\nhost = "localhost"\nport = 1\ntls = false\nrule = "r"\ninbox_topic = "none"\n'
    found = modules_of_forwarder(tmp_path, SMALLEST, f"{least}[health]\nport = 0\n")
    assert "eventplane_mqtt" in found
    # A dataclass without a docstring would load `inspect`, and with it `dis` and `ast`.
    assert not found & (HEAVY | {"ssl", "dis", "inspect", "ipaddress"})
    assert not found & {"eventplane_mqtt.profile", "eventplane.interest", "eventplane.contract.mapping"}
    assert not {each for each in found if each.startswith("parts")}
    assert not found & {f"edge.{each}" for each in ON_DEMAND}
    files = sources(ROOT, found)
    assert len(files) <= MOST_MODULES
    assert sum(len(each.read_text().splitlines()) for each in files) <= MOST_LINES


def test_what_settings_ask_for_is_loaded(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    identity = authority.issue("t")
    identity.key.chmod(0o600)
    profile = tmp_path / "mosquitto.conf"
    profile.write_text("listener 1\n")
    found = modules_of_forwarder(
        tmp_path,
        mapped(ordered(), ALARM),
        f'profile = "{profile}"\n[cloud]\nhost = "localhost"\nport = 1\nrule = "r"\nbytes_per_day = 1\n'
        f'ca = "{authority.ca}"\ncertificate = "{identity.certificate}"\nkey = "{identity.key}"\n'
        f"[health]\nport = {free_port()}\n",
    )
    asked = ("check", "data_budget", "health_server")
    assert {"ssl", "parts.discovery.broker", "eventplane.ordering", "eventplane.contract.mapping"} <= found
    assert {f"edge.{each}" for each in asked} <= found


LAZY = "from edge.__main__ import be_lazy; be_lazy()"
SHOW = "print(*(f'real-{name}' for name, each in sys.modules.items() if 'Lazy' not in type(each).__name__))"


def test_a_lazy_module_loads_when_it_is_read() -> None:
    read = "import inspect; from inspect import signature; assert inspect.signature is signature"
    split = "import urllib.parse; assert urllib.parse.urlsplit('http://[::1]:80/').hostname == '::1'"
    strict = "import ipaddress; assert ipaddress.ip_address('::1').is_loopback"
    modules = loaded(LAZY, "import dataclasses", read, split, strict, SHOW)
    assert {"dis", "real-inspect", "real-ipaddress"} <= modules
