"""What the package adds and loads: transports of other packages, no library too early, and its page."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from eventplane_client import ClientSettings, connect, errors, notices
from eventplane_client.connection import TRANSPORTS
from eventplane_client.errors import ClientSettingsError
from tests.packages import install
from tests.unit.client.worlds import event

ROOT = Path(__file__).parents[3]

PIGEON = """
from eventplane_client.client import Client
from eventplane_client.memory import MemoryTransport
from eventplane_client.connection import memory_plane, filter_of
from eventplane_client.subscription import NoSubscriptions

def connect(settings, address, on_notice):
    transport = MemoryTransport(memory_plane(address), settings.participant)
    return Client(
        settings.participant, transport, filter_of(settings, "memory:", on_notice), NoSubscriptions("none")
    )
"""


@pytest.mark.source("P13", "N1")
def test_a_package_adds_a_transport(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, "pigeon_post", {TRANSPORTS: {"pigeon": "pigeon_post:connect"}}, PIGEON)
    with (
        connect(ClientSettings("pigeon:loft", "bell")) as bell,
        connect(ClientSettings("memory:loft", "desk")) as desk,
        desk.subscribe({"prefix": {"type": "org."}}) as inbox,
    ):
        bell.put(event("by-pigeon"))
        assert inbox.get(1).id == "by-pigeon"


@pytest.mark.parametrize(
    ("packages", "code", "problem"),
    [
        ((), "", r"'pigeon:loft' is not known; .*memory:, mqtt:"),
        (("pigeon_one", "pigeon_two"), PIGEON, "several packages add pigeon: pigeon_"),
        (
            ("pigeon_three",),
            "import corn_that_nobody_has\n",
            "corn_that.*; pip install pigeon_three",
        ),
    ],
    ids=["unknown", "of two packages", "lacks what it needs"],
)
def test_a_wrong_transport_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, packages: tuple[str, ...], code: str, problem: str
) -> None:
    for name in packages:
        install(monkeypatch, tmp_path / name, name, {TRANSPORTS: {"pigeon": f"{name}:connect"}}, code)
    with pytest.raises(ClientSettingsError, match=problem):
        connect(ClientSettings("pigeon:loft", "bell"))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] in ("nats", "eventplane_nats")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(ClientSettingsError, match=r"nats cannot be loaded: .*; pip install nats-py"):
        connect("nats://127.0.0.1:4222/dev", "desk")


def test_only_the_wanted_package_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    points = {TRANSPORTS: {"pigeon": "pigeon_four:connect"}}
    install(monkeypatch, tmp_path, "pigeon_four", points, "raise AssertionError('loaded')\n")
    with connect(ClientSettings("memory:loft", "bell")):
        pass


def loaded(module: str) -> set[str]:
    """Return the modules in memory after a fresh interpreter has imported `module`."""
    program = f"import sys, {module}; print(*sys.modules, sep='\\n')"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


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


class TestImports:
    """In an interpreter of its own."""

    def test_a_service_loads_little(self) -> None:
        modules = loaded("eventplane_client.mqtt")
        assert "eventplane_mqtt" in modules
        assert not modules & {
            "boto3",
            "email",
            "http",
            "sqlite3",
            "ssl",
            "zeroconf",
            "eventplane_client.client",
        }

    def test_mqtt_needs_no_package(self) -> None:
        result = subprocess.run(
            [sys.executable, "-S", "-c", CONNECTED], cwd=ROOT, capture_output=True, text=True, check=True
        )
        modules = {each.partition(".")[0] for each in result.stdout.split()}
        ours = {"eventplane", "eventplane_client", "eventplane_mqtt", "parts"}
        assert ours <= modules
        assert not {
            each for each in modules - set(sys.stdlib_module_names) - ours if not each.startswith("_")
        } - {"edge", "contract"}

    def test_a_client_without_aws_does_not_load_its_libraries(self) -> None:
        modules = loaded("eventplane_client.connection, eventplane_client.mqtt")
        assert not modules & {"boto3", "botocore", "sqlite3", "ssl", "zeroconf"}


API_PAGE = (ROOT / "docs" / "reference" / "api" / "client.md").read_text()


@pytest.mark.source("F5")
def test_the_api_page_describes_every_error_and_notice() -> None:
    named = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.ClientError)
    }
    assert len(named) > 20
    for each in {*named, *get_args(notices.Notice)}:
        assert f"::: {each.__module__}" in API_PAGE
        # A dataclass without a docstring gets its signature as one.
        assert not (each.__doc__ or f"{each.__name__}(").startswith(f"{each.__name__}("), each
