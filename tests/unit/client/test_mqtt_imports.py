"""What a service on a device loads: the way to its broker, and nothing for the cloud."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def loaded(module: str) -> set[str]:
    """Return the modules in memory after a fresh interpreter has imported `module`."""
    program = f"import sys, {module}; print(*sys.modules, sep='\\n')"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


def test_a_service_loads_neither_tls_nor_the_rest_of_the_client_library() -> None:
    modules = loaded("eventplane_client.mqtt")
    assert "eventplane_mqtt" in modules
    assert not modules & {"boto3", "email", "http", "sqlite3", "ssl", "zeroconf", "eventplane_client.client"}


CONNECTED = """
import sys
sys.modules["edge"] = sys.modules["contract"] = None  # as if only the client were installed
from eventplane_client import connect
from eventplane.envelope import write_event
with connect("mqtt://127.0.0.1:1", "voice-service", mode="at_least_once") as client:
    client.send(write_event({"id": "1", "source": "/s", "type": "t"}))
    client.subscribe()
print(*sys.modules, sep="\\n")
"""


def test_over_mqtt_a_client_needs_no_package_and_nothing_of_the_forwarder() -> None:
    result = subprocess.run(
        [sys.executable, "-S", "-c", CONNECTED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    modules = {each.partition(".")[0] for each in result.stdout.split()}
    ours = {"eventplane", "eventplane_client", "eventplane_mqtt"}
    assert ours <= modules
    assert not {
        each for each in modules - set(sys.stdlib_module_names) - ours if not each.startswith("_")
    } - {"edge", "contract"}


def test_a_client_without_aws_does_not_load_its_libraries() -> None:
    modules = loaded("eventplane_client.connection, eventplane_client.mqtt")
    assert not modules & {"boto3", "botocore", "sqlite3", "ssl", "zeroconf"}
