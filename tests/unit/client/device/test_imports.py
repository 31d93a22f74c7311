"""What a service on a device loads: the way to its broker, and nothing for the cloud."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]


def loaded(module: str) -> set[str]:
    """Return the modules in memory after a fresh interpreter has imported `module`."""
    program = f"import sys, {module}; print(*sys.modules, sep='\\n')"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


def test_a_service_loads_neither_tls_nor_the_rest_of_the_client_library() -> None:
    modules = loaded("eventplane_client.device")
    assert "edge.mqtt" in modules
    assert not modules & {"boto3", "email", "http", "sqlite3", "ssl", "zeroconf", "eventplane_client.client"}


def test_a_client_without_aws_does_not_load_its_libraries() -> None:
    modules = loaded("eventplane_client.connection, eventplane_client.mqtt")
    assert not modules & {"boto3", "botocore", "sqlite3", "ssl", "zeroconf"}
