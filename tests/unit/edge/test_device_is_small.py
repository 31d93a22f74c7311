"""What the device ships imports itself, the core and the standard library, and of that only what it needs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DEVICE = sorted(each for name in ("edge", "eventplane_mqtt") for each in (ROOT / name).rglob("*.py"))
OURS = {"edge", "eventplane", "eventplane_mqtt"}
EXTRAS = {"eventplane_mqtt/discovery/dns_sd.py": {"zeroconf"}}
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


def imported_packages(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


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
    strangers = imported_packages(module.read_text()) - set(sys.stdlib_module_names) - OURS
    assert strangers == EXTRAS.get(str(module.relative_to(ROOT)), set())


@pytest.mark.source("P7", "P18")
def test_the_forwarder_loads_nothing_heavy() -> None:
    modules = loaded("import edge.command_line, edge.daemon")
    assert "eventplane_mqtt" in modules
    assert not modules & HEAVY
    # Without `local.profile` nobody reads one.
    assert not {each for each in modules if each.startswith("eventplane_mqtt.discovery")}


LAZY = "from edge.__main__ import be_lazy; be_lazy()"
SHOW = "print(*(f'real-{name}' for name, each in sys.modules.items() if 'Lazy' not in type(each).__name__))"


def test_the_program_does_not_load_what_only_the_standard_library_imports() -> None:
    """A dataclass without a docstring would load `inspect`, and with it `dis` and `ast`."""
    modules = loaded(LAZY, "import edge.command_line, edge.daemon, eventplane.cesql.compilation", SHOW)
    assert {"real-dataclasses", "real-urllib.parse"} <= modules
    assert not modules & {"dis", "real-inspect", "real-ipaddress"}


def test_a_lazy_module_loads_when_it_is_read() -> None:
    read = "import inspect; from inspect import signature; assert inspect.signature is signature"
    split = "import urllib.parse; assert urllib.parse.urlsplit('http://[::1]:80/').hostname == '::1'"
    strict = "import ipaddress; assert ipaddress.ip_address('::1').is_loopback"
    modules = loaded(LAZY, "import dataclasses", read, split, strict, SHOW)
    assert {"dis", "real-inspect", "real-ipaddress"} <= modules
