"""Transports are found by entry points: the library's own and those of other packages alike."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from eventplane.names import TRANSPORTS
from eventplane_client import ClientSettings, connect
from eventplane_client.errors import ClientSettingsError
from tests.packages import install
from tests.unit.client.worlds import event

pytestmark = pytest.mark.source("P13", "N1")

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


def test_the_librarys_own_transports_are_registered_like_any_others() -> None:
    assert {"memory", "mqtt", "mqtt-profile", "sqs"} <= set(entry_points(group=TRANSPORTS).names)
    for each in entry_points(group=TRANSPORTS):
        assert callable(each.load())


def test_a_package_adds_a_transport_without_a_change_of_the_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, tmp_path, "pigeon_post", {TRANSPORTS: {"pigeon": "pigeon_post:connect"}}, PIGEON)
    with (
        connect(ClientSettings("bell", "pigeon:loft")) as bell,
        connect(ClientSettings("desk", "memory:loft")) as desk,
        desk.subscribe({"prefix": {"type": "org."}}) as inbox,
    ):
        bell.put(event("by-pigeon"))
        assert inbox.get(1).id == "by-pigeon"


def test_a_transport_that_nobody_registered_is_refused_with_those_that_are() -> None:
    with pytest.raises(ClientSettingsError, match=r"'pigeon:loft' is not known; .*memory:, mqtt:") as wrong:
        connect(ClientSettings("bell", "pigeon:loft"))
    assert wrong.value.setting == "transport"


def test_two_packages_with_one_name_are_refused_instead_of_chosen_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("pigeon_one", "pigeon_two"):
        points = {TRANSPORTS: {"pigeon": f"{name}:connect"}}
        install(monkeypatch, tmp_path / name, name, points, PIGEON)
    with pytest.raises(ClientSettingsError, match="several packages add pigeon: pigeon_"):
        connect(ClientSettings("bell", "pigeon:loft"))


def test_a_package_that_lacks_what_it_needs_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    points = {TRANSPORTS: {"pigeon": "pigeon_three:connect"}}
    install(monkeypatch, tmp_path, "pigeon_three", points, "import corn_that_nobody_has\n")
    with pytest.raises(ClientSettingsError, match=r"pigeon cannot be loaded: .*corn_that_nobody_has"):
        connect(ClientSettings("bell", "pigeon:loft"))


def test_only_the_package_that_is_asked_for_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    points = {TRANSPORTS: {"pigeon": "pigeon_four:connect"}}
    install(monkeypatch, tmp_path, "pigeon_four", points, "raise AssertionError('loaded')\n")
    with connect(ClientSettings("bell", "memory:loft")):
        pass
