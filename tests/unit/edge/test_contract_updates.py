"""The contract in force: one that the cloud sends, the kept copy of the last, a reload, a damaged spool."""

import base64
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge import durable, sent_contract
from edge.contract_updates import (
    Adopted,
    active_contract,
    contract_key,
    keep_contract,
    last_contract,
    read_contract,
)
from edge.errors import SettingProblem
from edge.forwarder import Reload
from edge.sent_contract import MOST_BYTES
from edge.spool.store import Spool
from edge.system import SYSTEM
from eventplane.contract import Contract, contract_document
from eventplane.device_reports import DEVICE_CONTRACT, UPLINK_INTEREST_TYPE, UPLINK_KEY
from eventplane.downlink.device import AckStatus
from eventplane.envelope import parse_event
from eventplane.names import FOLLOWED_CONTRACT
from eventplane.reasons import Reason
from eventplane_mqtt.mailbox import LinkName
from tests.small_contract import with_changes
from tests.unit.edge.builders import command, state
from tests.unit.edge.fakes import ALARM, Device, MakeDevice, contract, damage, event

KEY = contract_key("small")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "contract.json"
    file.write_bytes(contract().canonical)
    return file


def other() -> Contract:
    return contract(uplink_prefix="org.eventplane.alarm.")


def silent() -> Contract:
    """The device's contract without its alarm route."""
    return with_changes(contract(), {"routes/calls": None})


def faulty() -> dict[str, Any]:
    """A contract that loads, and that no compiler writes."""
    document = contract_document(other())
    document["participants"]["display"]["inbox"]["when_full"] = "drop_oldest"
    return document


def with_route(name: str) -> Contract:
    """The device's contract with one alarm route more."""
    route = {"filter": {"exact": {"type": ALARM}}, "to": "display.inbox"}
    return with_changes(contract(), {f"routes/{name}": route})


def update(version: int, data: Any, key: str = KEY) -> str:
    """A contract, or what is none, as the cloud sends it."""
    data = contract_document(data) if isinstance(data, Contract) else data
    return state(version, key, type=DEVICE_CONTRACT, data=data)


def packed(content: bytes) -> str:
    text = state(1, KEY, type=DEVICE_CONTRACT)
    return f'{text[:-1]},"data_base64":"{base64.b64encode(content).decode()}"}}'


def in_force(device: Device, file: Path) -> str:
    found = active_contract(read_contract(file), device.spool, contract())
    assert isinstance(found, Adopted)
    return found.contract.version


@pytest.mark.parametrize("compress", [False, True])
def test_a_contract_of_the_cloud_is_preferred(device: Device, file: Path, compress: bool) -> None:
    text = packed(gzip.compress(other().canonical)) if compress else update(1, other())
    device.send_down(text)
    assert device.contracts_came == 1
    assert [each.result for each in device.acknowledgements()] == [AckStatus.STORED]
    assert in_force(device, file) == other().version
    device.restart(connected=False)
    assert in_force(device, file) == other().version


def test_deleting_it_gives_the_file_its_place_back(device: Device, file: Path) -> None:
    device.send_down(update(1, other()))
    device.send_down(state(2, KEY, type=DEVICE_CONTRACT, deleted=True))
    assert device.contracts_came == 2
    assert in_force(device, file) == contract().version


WRONG_ROUTE = {"x": {"filter": {"exact": {"type": "t"}}, "to": "nobody.inbox"}}


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (update(1, {"format": 1}), "name"),
        (update(1, silent()), "routes.calls"),
        (update(1, silent()), "need a new image"),
        (update(1, None), ""),
        (update(1, "contract"), ""),
        (update(1, contract_document(other()) | {"routes": WRONG_ROUTE}), "nobody"),
        (update(1, faulty()), "inbox.when_full"),
        (update(1, contract_document(other()) | {"name": "another"}), "another"),
        (update(1, other(), contract_key("another")), KEY),
        (packed(b"no gzip"), "no compiled contract"),
        (packed(gzip.compress(b"no contract")), "not JSON"),
        (packed(gzip.compress(other().canonical)[:-9]), "not all"),
        (packed(gzip.compress(b" " * (MOST_BYTES + 1))), "more than"),
    ],
)
def test_a_broken_one_is_rejected(device: Device, file: Path, text: str, detail: str) -> None:
    device.send_down(text)
    (answer,) = device.acknowledgements()
    assert (answer.result, answer.reason) == (AckStatus.REJECTED, Reason.CONTRACT_REFUSED)
    assert detail in answer.detail
    assert device.contracts_came == 0
    assert in_force(device, file) == contract().version


def test_a_broken_one_does_not_take_the_place_of_a_good_one(device: Device, file: Path) -> None:
    device.send_down(update(1, other()), update(2, {}))
    assert in_force(device, file) == other().version
    # What corrects it has a newer version.
    device.send_down(update(3, contract()))
    assert in_force(device, file) == contract().version


def test_a_command_of_such_a_key_is_a_command(device: Device) -> None:
    device.send_down(command(1, KEY))
    assert device.contracts_came == 0
    assert [each.result for each in device.acknowledgements()] == [AckStatus.STORED]


def test_one_that_this_program_cannot_read_leaves_it_to_the_file(device: Device, file: Path) -> None:
    device.send_down(update(1, other()))
    newer = update(1, contract_document(other()) | {"format": 99})
    held = device.spool.device_state("state", KEY)
    device.spool.commit([], uptime_ms=0, states=[held._replace(json=newer)])
    assert in_force(device, file) == contract().version


def test_the_file_is_checked_where_it_is_new(file: Path) -> None:
    file.write_text(json.dumps(faulty()))
    assert isinstance(read_contract(file), Contract)
    assert "inbox.when_full" in str(read_contract(file, is_new=True))


def test_one_that_cannot_be_checked_is_rejected(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_contract, "can_load", lambda _: False)
    device.send_down(update(1, other()))
    assert "restart the forwarder" in device.acknowledgements()[0].detail
    assert device.contracts_came == 0


def test_without_either_the_problem_names_the_file(device: Device, tmp_path: Path) -> None:
    found = active_contract(read_contract(tmp_path / "nowhere.json"), device.spool, contract())
    assert isinstance(found, SettingProblem)
    assert "nowhere.json" in str(found)


def test_a_damaged_spool_gives_no_contract_so_that_the_one_in_force_stays(device: Device, file: Path) -> None:
    device.send_down(update(1, other()))
    device.spool._db.execute("UPDATE device_state SET text = zeroblob(10)")
    assert isinstance(active_contract(read_contract(file), device.spool, contract()), SettingProblem)


def test_it_is_measured_by_the_image_and_not_by_what_came_down_before(device: Device, file: Path) -> None:
    more = with_route("more")
    device.send_down(update(1, more))
    assert in_force(device, file) == more.version
    # The route is no part of the image's contract, so that it may go again.
    device.turn(Reload(more), device.from_cloud(update(2, other())))
    assert in_force(device, file) == other().version
    device.send_down(update(3, silent()))
    assert in_force(device, file) == other().version


def test_a_new_images_alarms_win(device: Device, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    device.send_down(update(1, other()))
    new = with_route("rings")
    file.write_bytes(new.canonical)
    found = active_contract(read_contract(file), device.spool, contract())
    assert isinstance(found, Adopted)
    assert (found.contract.version, found.image.version) == (new.version, new.version)
    assert "routes.rings" in str(found.refused)
    assert "routes.rings" in caplog.text


def test_while_the_file_is_broken_the_image_is_what_it_was_before(device: Device, file: Path) -> None:
    device.send_down(update(1, other()))
    file.write_bytes(b"{")
    found = active_contract(read_contract(file), device.spool, contract())
    assert found == Adopted(other(), contract())


@pytest.fixture
def spool_path(tmp_path: Path) -> Path:
    return tmp_path / "spool.db"


@pytest.mark.parametrize(
    ("kept", "followed"),
    [
        (other(), other()),
        (silent(), contract()),
        (with_changes(other(), {"name": "another"}), contract()),
        (None, contract()),
    ],
    ids=["of the cloud", "without an alarm", "of another plane", "nothing"],
)
def test_no_disk_no_loss(spool_path: Path, file: Path, kept: Contract | None, followed: Contract) -> None:
    if kept is not None:
        keep_contract(kept, spool_path)
    with Spool(spool_path, SYSTEM, on_disk=False) as spool:
        assert active_contract(read_contract(file), spool, contract()) == Adopted(followed, contract())
        file.write_bytes(b"{")
        found = active_contract(read_contract(file), spool, contract())
    if followed == kept:
        assert found == Adopted(kept, contract())
    else:
        assert isinstance(found, SettingProblem)


def test_the_last_active_contract_is_kept(spool_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert last_contract(spool_path) is None
    for each in (contract(), other()):
        keep_contract(each, spool_path)
        assert last_contract(spool_path) == each
    with monkeypatch.context() as patched:
        patched.setattr(durable, "write", lambda *_: pytest.fail("flash wears out"))
        keep_contract(other(), spool_path)
    (file,) = spool_path.parent.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    assert last_contract(spool_path) is None
    keep_contract(other(), spool_path)
    assert last_contract(spool_path) == other()


def test_without_room_the_contract_is_not_kept_and_that_is_logged(
    spool_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "write", full)
    keep_contract(contract(), spool_path)
    assert "spool.db.contract: No space left on device" in caplog.text


LOCAL, CLOUD = LinkName.LOCAL, LinkName.CLOUD
FIRE = event("fire", ALARM, subject="show")  # for call service, display and cloud


class TestReload:
    @pytest.mark.source("P13", "P-W8")
    def test_routes_follow_the_new_contract_from_the_next_turn_on(self, device: Device) -> None:
        narrow = contract(uplink_prefix="org.eventplane.alarm.")
        device.turn(device.from_service(event("before")), Reload(narrow))
        device.send(event("after"), event("show", subject="show"))
        assert [each.refused for each in device.receipts()] == [None, "unrouted", None]

    def test_an_event_keeps_the_contract_under_which_it_was_accepted(self, device: Device) -> None:
        sent, image = contract(uplink_prefix="org.eventplane.a"), contract()
        device.disconnect(CLOUD)
        device.turn(device.from_service(event("a", ALARM)), Reload(sent, image))
        device.turn(device.from_service(event("b", ALARM)), Reload(image, image))
        device.send(event("c", ALARM))
        device.restart()
        named = {each.id: each.attributes.get(FOLLOWED_CONTRACT) for each in device.sent_up(ALARM)}
        assert named == {"a": None, "b": sent.version, "c": None}

    def test_what_goes_on_over_an_unchanged_channel_is_not_repeated(self, device: Device) -> None:
        device.send(event("fire", ALARM))
        uplink = device.forwarder.uplink
        device.turn(Reload(contract(uplink_prefix="org.eventplane.a")))
        device.turn(device.puback(1))
        assert device.forwarder.uplink is uplink
        assert device.cloud_link.up
        assert device.local_link.up
        assert device.spool.backlog() == {"call.inbox": 1, "device.outbox": 0}
        assert len(device.delivered("call")) == 1

    def test_a_changed_uplink_starts_over_a_new_connection(self, device: Device) -> None:
        device.send(event("fire", ALARM))
        device.turn(Reload(contract(batching_delay_ms=0)))
        assert device.forwarder.counts.published_events == 1  # since the process began
        assert device.cloud.last.abandoned
        device.turn(device.puback(1))  # late, of the old connection
        device.redial(CLOUD)
        assert device.uplinked() == [["fire"]]

    def test_new_outboxes_are_subscribed_to(self, device: Device) -> None:
        assert contract().channel("display.inbox").receipts is False
        device.turn(Reload(contract(display={"inbox": {"receipts": True}})))
        assert device.local.last.abandoned
        assert not device.local_link.up
        device.redial(LOCAL)
        device.send(event("e", subject="show"))
        assert len(device.delivered("display")) == 1

    @pytest.mark.source("P-W3")
    def test_unrouted_events_are_kept(self, device: Device, caplog: pytest.LogCaptureFixture) -> None:
        device.disconnect(LOCAL)
        device.send(event("e", subject="show"))
        plane = contract()
        device.turn(Reload(without_route(plane, "shows")))
        assert "1 event(s) wait for display.inbox" in caplog.text
        device.turn(Reload(plane))
        device.connect(LOCAL)
        assert len(device.delivered("display")) == 1

    def test_repetitions_are_known_as_before(self, device: Device) -> None:
        device.send(event("e"))
        device.turn(Reload(contract(batching_delay_ms=0)))
        device.send(event("e"))
        assert device.spool.backlog() == {"device.outbox": 1}

    def test_a_question_is_answered_by_the_contract_under_which_it_was_asked(self, device: Device) -> None:
        plane = without_route(contract(), "shows")
        others = {name: each for name, each in plane.participants.items() if name != "display"}
        asked = device.question_of("display", "q", "no/such/key")
        device.turn(asked, Reload(replace(plane, participants=others)))
        assert [each.id for each in device.answers("display")] == ["q"]


class TestUnstored:
    """Urgent events that are only in memory."""

    @pytest.fixture
    def full(self, make: MakeDevice) -> Device:
        """No byte of room is left, and no broker is there."""
        device = make(connected=False)
        device.resize(device.spool.space.used_bytes)
        return device

    def test_they_go_over_a_changed_uplink_and_once(self, full: Device) -> None:
        full.connect(CLOUD)
        full.send(FIRE)
        assert full.uplinked() == [["fire"]]  # unacknowledged
        full.disconnect(CLOUD)
        full.send(event("later", ALARM))
        full.turn(Reload(contract(batching_delay_ms=0)))
        full.send(FIRE)
        full.redial(CLOUD)
        assert full.uplinked() == [["fire", "later"]]
        full.acknowledge_all()
        full.send(FIRE)
        assert full.uplinked() == [["fire", "later"]]

    def test_they_go_to_a_changed_inbox_and_once(self, full: Device) -> None:
        full.send(FIRE)
        full.turn(Reload(contract(display={"inbox": {"receipts": True}})))
        full.send(FIRE)
        full.redial(LOCAL)
        assert full.ids_at("display") == full.ids_at("call") == ["fire"]

    def test_those_in_flight_to_an_unchanged_inbox_are_not_repeated(self, full: Device) -> None:
        full.connect(LOCAL)
        full.send(FIRE)
        full.turn(Reload(contract(batching_delay_ms=0)))
        full.turn(after=1.0)
        full.confirm()
        full.send(FIRE)
        assert full.ids_at("call") == ["fire"]
        assert full.forwarder.counts.sent_unstored == 1

    def test_a_new_route_sends_kept_commands(self, full: Device) -> None:
        full.send(FIRE)
        full.turn(Reload(without_route(contract(), "shows")))
        full.turn(Reload(contract()))
        full.send(FIRE)
        full.connect(LOCAL)
        assert full.ids_at("display") == ["fire"]

    def test_damage_loses_no_contract(self, full: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        full.send(FIRE)
        damage(full, monkeypatch, "device_state")  # what the cloud wants
        changed = contract(display={"inbox": {"receipts": True}}, forward="wanted")
        full.turn(Reload(changed))
        full.redial()
        assert full.ids_at("display") == ["fire"]
        assert [each.id for each in full.sent_up(ALARM)] == ["fire"]


def without_route(plane: Contract, name: str) -> Contract:
    return replace(plane, routes=tuple(each for each in plane.routes if each.name != name))


class TestDamage:
    @pytest.mark.parametrize("method", ["commit", "read"])
    def test_the_spool_is_opened_again_and_work_goes_on(
        self, device: Device, monkeypatch: pytest.MonkeyPatch, method: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        device.send(event("first"))
        damaged = device.spool
        device.forwarder.uplink.disconnected()  # so that it reads from the spool again
        damage(device, monkeypatch, method)
        device.send(event("fire", ALARM))
        assert device.spool is not damaged
        assert "page 3 is torn" in caplog.text
        assert [each.refused for each in device.receipts()] == [None, None]
        device.turn()
        assert parse_event(device.delivered("call")[0]).id == "fire"
        device.redial(CLOUD)
        device.acknowledge_all()
        assert {"first", "fire"} <= {id for batch in device.uplinked() for id in batch}
        assert device.spool.backlog()["device.outbox"] == 0

    def test_while_a_contract_takes_effect(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        wanting = contract(display={"inbox": {"receipts": True}}, forward="wanted")
        damaged = device.spool
        damage(device, monkeypatch, "device_state")  # what the cloud wants
        device.turn(device.from_service(event("e")), Reload(wanting))
        assert device.spool is not damaged
        assert device.local.last.abandoned  # the new subscriptions need a new connection
        device.redial()
        device.send(event("shown", subject="show"))
        assert device.ids_at("display") == ["shown"]
        device.turn(after=1.0)
        assert "e" in {id for batch in device.uplinked() for id in batch}

    def test_damage_during_new_interest(self, make: MakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
        device = make(forward="wanted", batching_delay_ms=0)
        damaged = device.spool
        commit = damaged.commit

        def commit_then_tear(*arguments: Any, **options: Any) -> None:
            commit(*arguments, **options)
            damage(device, monkeypatch, "device_state")

        monkeypatch.setattr(damaged, "commit", commit_then_tear)
        data = {"version": 1, "filters": [{"exact": {"type": ALARM}}]}
        device.send_down(state(1, UPLINK_KEY, type=UPLINK_INTEREST_TYPE, data=data))
        assert device.spool is not damaged
        assert len(device.cloud.all[0].acknowledged) == 1
        device.send(event("reading"))
        assert device.not_stored() == {("device.outbox", Reason.NO_INTEREST): 1}
