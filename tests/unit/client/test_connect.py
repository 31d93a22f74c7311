"""Connecting a client by its settings, and what the package loads and documents."""

import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Unpack, get_args, get_type_hints

import pytest

from eventplane.fields import Range
from eventplane_client import ClientSettings, Mode, cloud_event_of, connect, errors, notices
from eventplane_client.connection import TRANSPORTS
from eventplane_client.delivery import Telemetry
from eventplane_client.errors import (
    AlreadySubscribedError,
    ClientSettingsError,
    ClosedError,
    NothingThereError,
    NotRegisteredError,
    NotSubscribedError,
    SubscriptionError,
    UnavailableError,
    UnroutedError,
)
from eventplane_client.memory import RANGES as PLANE_RANGES
from eventplane_client.memory import MemoryPlane
from eventplane_client.settings import ARGUMENTS, PREFIX, Options, Word, host_and_port
from tests.packages import install
from tests.plane import shipped_contract
from tests.unit.client.worlds import event

ENVIRONMENT = {
    "EVENTPLANE_CLIENT_PARTICIPANT": "desk",
    "EVENTPLANE_CLIENT_TRANSPORT": "memory:settings",
    "EVENTPLANE_CLIENT_MODE": "at_least_once",
    "EVENTPLANE_CLIENT_WINDOW": "500",
    "EVENTPLANE_CLIENT_GAP_TIMEOUT_S": "2.5",
}


@pytest.mark.source("P13", "N1")
def test_the_environment_says_everything() -> None:
    assert ClientSettings.read(ENVIRONMENT) == ClientSettings(
        "memory:settings", "desk", mode=Mode.AT_LEAST_ONCE, window=500, gap_timeout_s=2.5
    )


def test_the_environment_has_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EVENTPLANE_CLIENT_TRANSPORT", "memory:elsewhere")
    rings = {"exact": {"type": "ring"}}
    with connect("memory:given", "bell") as bell, connect("memory:given", mode=Mode.EXACTLY_ONCE) as desk:
        assert (bell.participant, desk.participant) == ("bell", "desk")
        with desk.subscribe(rings) as inbox:
            bell.put(event("ring", type="ring"))
            assert inbox.get(0).id == "ring"
    with connect(ClientSettings("memory:given", "desk"), "porter") as porter:
        assert porter.participant == "porter"
    with pytest.raises(ClientSettingsError, match="'mode': 'twice' does not fit; give one of exactly_once"):
        connect("memory:given", mode="twice")  # type: ignore[arg-type]
    monkeypatch.setenv("EVENTPLANE_CLIENT_MODEE", "at_least_once")
    with pytest.raises(ClientSettingsError, match=r"'modee': there is no such setting; did you mean mode\?"):
        connect("memory:given", "bell")


def test_every_setting_is_an_argument() -> None:
    assert get_type_hints(connect)["more"] == Unpack[Options]
    hints, by_position = get_type_hints(ClientSettings), {"transport", "participant", "_"}
    settings = {name: hint | None for name, hint in hints.items() if name not in by_position}
    settings |= {"mode": Mode | Word | None, "telemetry": Telemetry | Literal["none", "opentelemetry"] | None}
    assert get_type_hints(Options) == settings
    assert get_args(Word) == tuple(Mode)
    for make in (connect, partial(connect, ClientSettings("memory:x", "desk")), ClientSettings):
        with pytest.raises(ClientSettingsError, match=r"no such setting; did you mean mode\?"):
            make(modee="at_least_once")
    with pytest.raises(ClientSettingsError, match=r"did you mean on_notice\?"):
        connect("memory:x", "desk", on_notise=print)


def test_the_old_order_is_read_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"write ClientSettings\('memory:x', 'desk'\)") as warned:
        old = ClientSettings("desk", "memory:x", window=5)
    assert old == ClientSettings("memory:x", "desk", window=5)
    assert warned[0].filename == __file__


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("boto3", "aws", lambda: connect("sqs:prod", "desk")),
        ("botocore", "aws", lambda: connect("sqs:prod", "desk")),
        ("aws_lambda_powertools", "functions", lambda: import_module("eventplane_client.functions")),
        ("boto3", "functions", lambda: import_module("eventplane_client.functions")),
        ("opentelemetry", "otel", lambda: connect("memory:x", "desk", telemetry="opentelemetry")),
        ("cloudevents", "cloudevents", lambda: cloud_event_of(event())),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    package: str, extra: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    users = {"eventplane_client.aws", "eventplane_client.functions", "parts.tracing.client"}
    for name in [each for each in sys.modules if each in users or each.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError) as missing:
        use()
    command = f"pip install 'eventplane-client[{extra}]'"
    assert str(missing.value) == f"the Python package {package} is missing; install it: {command}"


@pytest.mark.source("P14")
def test_a_home_service_keeps_state_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    with connect("mqtt://127.0.0.1:1", "call-service") as client:
        assert not [*tmp_path.iterdir()]
        client.subscribe()
        assert (tmp_path / "eventplane" / "call-service.db").is_file()
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    with (
        connect("mqtt://127.0.0.1:1", "call-service") as client,
        pytest.raises(ClientSettingsError, match="name a file that can be written"),
    ):
        client.subscribe()


def test_only_a_device_keeps_states() -> None:
    with connect("memory:states", "desk") as desk:
        with pytest.raises(UnavailableError, match="only a device keeps states"):
            desk.state("setting/climate/target")
        desk.close()
        with pytest.raises(ClosedError):
            desk.state("setting/climate/target")


@pytest.mark.parametrize(
    ("transport", "state"),
    [
        ("carrier-pigeon:", ""),
        ("memory", ""),
        ("memory:x", "stone:"),
        ("memory:x", "sqlite:"),
    ],
)
def test_an_unknown_backend_is_refused(transport: str, state: str) -> None:
    with pytest.raises(ClientSettingsError):
        connect(ClientSettings(transport, "desk", state=state))


@pytest.mark.source("F1", "F3", "F5")
def test_subscribers_get_what_passes_their_filter_from_then_on(tmp_path: Path) -> None:
    state = f"sqlite:{tmp_path / 'state.db'}"
    with (
        connect(ClientSettings("memory:routes", "desk", state=state)) as desk,
        connect(ClientSettings("memory:routes", "bell")) as bell,
    ):
        with pytest.raises(UnroutedError):
            bell.put(event("before", type="ring"))
        rings = {"exact": {"type": "ring"}}
        with desk.subscribe(rings, name="rings") as inbox:
            bell.put(event("ring", type="ring"))
            with pytest.raises(UnroutedError):
                bell.put(event("other", type="battery"))
            assert inbox.get(0).id == "ring"
            with pytest.raises(NothingThereError):
                inbox.get(0)
            desk.subscribe(rings, name="rings")  # the same again is the same
            with pytest.raises(AlreadySubscribedError):
                desk.subscribe({"exact": {"type": "battery"}}, name="rings")
            desk.unsubscribe("rings")
            with pytest.raises(UnroutedError):
                bell.put(event("after", type="ring"))
            with pytest.raises(NotRegisteredError):
                inbox.get(0)
        with pytest.raises(NotSubscribedError):
            desk.unsubscribe("rings")
        with pytest.raises(SubscriptionError) as wrong:
            desk.subscribe({"sql": "type = ("}, name="wrong")
        assert wrong.value.problems[0].path == "filter.sql"


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("//home", ("home", 1883)),
        ("//127.0.0.1:1884", ("127.0.0.1", 1884)),
        ("//[::1]:1884", ("::1", 1884)),
        ("//[::1]", ("::1", 1883)),
        ("///run/mqtt.sock", ("/run/mqtt.sock", 1883)),
    ],
)
def test_a_broker_has_an_address_of_any_family(address: str, found: tuple[str, int]) -> None:
    assert host_and_port(address, 1883) == found


NEEDED = {"participant": "desk", "transport": "memory:ranges"}


def environment(**variables: str) -> dict[str, str]:
    return {PREFIX + name.upper(): value for name, value in {**NEEDED, **variables}.items()}


def made(name: str, value: Any) -> Iterator[Callable[[], ClientSettings]]:
    """Settings with this value, given in code and, where it is no empty text, in the environment."""
    yield lambda: ClientSettings(**{**NEEDED, name: value})
    if value != "":
        yield lambda: ClientSettings.read(environment(**{name: str(value)}))


def beyond(ranges: Mapping[str, Range]) -> list[tuple[str, Any]]:
    """What no number accepts, by the names of the ranges."""
    cases: list[tuple[str, Any]] = []
    for name, accepted in ranges.items():
        wrong = [accepted.low - 1, accepted.high * 2 + 1, math.nan, math.inf, True, "", "many"]
        wrong += [accepted.low + 0.5] if accepted.is_whole else []
        cases += [(name, each) for each in wrong]
    return cases


RANGES = {
    each.name: each.metadata["accepts"]
    for each in fields(ClientSettings)
    if isinstance(each.metadata["accepts"], Range)
}
WORDS = ("mode", "telemetry")
WRONG = [*beyond(RANGES), *((name, "sometimes") for name in WORDS), *((name, "") for name in NEEDED)]


@pytest.mark.source("C5")
@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_setting_out_of_its_range_is_refused_by_name(name: str, value: Any) -> None:
    for make in made(name, value):
        with pytest.raises(ClientSettingsError, match=f"{PREFIX}{name.upper()}|give") as wrong:
            make()
        assert wrong.value.setting == name


@pytest.mark.parametrize("name", RANGES)
def test_both_ends_of_a_range_are_accepted(name: str) -> None:
    for value in (RANGES[name].low, RANGES[name].high):
        assert [getattr(make(), name) for make in made(name, value)] == [value, value]


def test_an_empty_variable_counts_as_unset() -> None:
    settings = ClientSettings.read(environment(window="", mode="", gap_timeout_s=""))
    assert settings == ClientSettings(**NEEDED)
    assert settings.mode is Mode.EXACTLY_ONCE


@pytest.mark.source("C5")
@pytest.mark.parametrize(("name", "value"), beyond(PLANE_RANGES))
def test_a_plane_in_memory_has_ranges_too(name: str, value: Any) -> None:
    with pytest.raises(ClientSettingsError) as wrong:
        MemoryPlane(**{name: value})
    assert wrong.value.setting == name


@pytest.mark.source("C5")
@pytest.mark.parametrize(("name", "value"), beyond(ARGUMENTS))
def test_so_have_the_arguments_of_calls(name: str, value: Any) -> None:
    arguments: dict[str, Any] = {"most": 1, "timeout_s": 0, name: value}
    with connect(ClientSettings(**NEEDED)) as client, client.subscribe({"exact": {"type": "t"}}) as inbox:
        for call in (inbox.get_batch, inbox.receive_batch):
            with pytest.raises(ClientSettingsError) as wrong:
                call(**arguments)
            assert wrong.value.setting == name
        if name == "timeout_s":
            for send in (client.put, client.request):
                with pytest.raises(ClientSettingsError):
                    send(event(type="t"), value)


def test_the_contract_says_when_to_give_up(tmp_path: Path) -> None:
    file = tmp_path / "contract.json"
    file.write_bytes(shipped_contract().canonical)
    found = []
    for contract in ("", str(file)):
        with connect("memory:retries", "care-analytics", give_up_after_s=60, contract=contract) as client:
            schedules = [
                client._reading["retries"](event(type=f"org.eventplane.{each}.v1"))
                for each in ("alarm.keyword", "home.news")
            ]
            found.append([(each.is_urgent, each.give_up_after_s) for each in schedules])
    assert found == [[(True, 60)] * 2, [(True, 86_400), (False, 43_200)]]


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
