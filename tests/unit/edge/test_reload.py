"""Another contract, and a spool that turns out to be damaged, while the forwarder works."""

from dataclasses import replace
from typing import Any

import pytest

from edge.forwarder import Reload
from eventplane.contract import Contract
from eventplane.device_reports import UPLINK_INTEREST_TYPE, UPLINK_KEY
from eventplane.envelope import parse_event
from eventplane.names import FOLLOWED_CONTRACT
from eventplane.reasons import Reason
from eventplane_mqtt.mailbox import LinkName
from tests.unit.edge.builders import state
from tests.unit.edge.fakes import ALARM, Device, MakeDevice, contract, damage, event

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
