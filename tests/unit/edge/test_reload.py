"""Another contract, and a spool that turns out to be damaged, while the forwarder works."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edge.errors import SpoolCorruptError, SpoolError
from edge.lane import Lane
from edge.messages import LinkName, Reload
from edge.spool import Spool
from eventplane.contract import Contract
from eventplane.device_reports import STARTED
from eventplane.envelope import parse_event
from tests.unit.edge.fakes import ALARM, Device, contract, event

LOCAL, CLOUD = LinkName.LOCAL, LinkName.CLOUD


class TestReload:
    def test_routes_follow_the_new_contract_from_the_next_turn_on(self, device: Device) -> None:
        narrow = contract(uplink_prefix="org.eventplane.alarm.")
        device.turn(device.from_service(event("before")), Reload(narrow))
        device.turn(device.from_service(event("after")), device.from_service(event("show", subject="show")))
        assert [each.refused for each in device.receipts()] == [None, "unrouted", None]

    def test_what_goes_on_over_an_unchanged_channel_is_not_repeated(self, device: Device) -> None:
        device.turn(device.from_service(event("fire", ALARM)))
        uplink = device.forwarder.uplink
        device.turn(Reload(contract(uplink_prefix="org.eventplane.a")))
        device.turn(device.puback(1))
        assert device.forwarder.uplink is uplink
        assert device.cloud_link.up
        assert device.local_link.up
        assert device.spool.backlog() == {"call.inbox": 1, "device.outbox": 0}
        assert len(device.delivered("call")) == 1

    def test_a_changed_uplink_starts_over_a_new_connection(self, device: Device) -> None:
        device.turn(device.from_service(event("fire", ALARM)))
        device.turn(Reload(contract(batching_delay_ms=0)))
        assert device.forwarder.counts.published_events == 1  # since the process began
        assert device.cloud.last.abandoned
        device.turn(device.puback(1))  # late, of the old connection
        device.turn(after=61.0)
        device.connect(CLOUD)
        assert device.uplinked() == [["fire"]]

    def test_new_outboxes_are_subscribed_to(self, device: Device) -> None:
        assert contract().channel("display.inbox").receipts is False
        device.turn(Reload(contract(display={"inbox": {"receipts": True}})))
        assert device.local.last.abandoned
        assert not device.local_link.up
        device.turn(after=61.0)
        device.connect(LOCAL)
        device.turn(device.from_service(event("e", subject="show")))
        assert len(device.delivered("display")) == 1

    def test_what_no_route_takes_on_is_kept_and_somebody_hears_of_it(
        self, device: Device, caplog: pytest.LogCaptureFixture
    ) -> None:
        device.disconnect(LOCAL)
        device.turn(device.from_service(event("e", subject="show")))
        plane = contract()
        device.turn(Reload(without_route(plane, "shows")))
        assert "1 event(s) wait for display.inbox" in caplog.text
        device.turn(Reload(plane))
        device.connect(LOCAL)
        assert len(device.delivered("display")) == 1

    def test_repetitions_are_known_as_before(self, device: Device) -> None:
        device.turn(device.from_service(event("e")))
        device.turn(Reload(contract(batching_delay_ms=0)))
        device.turn(device.from_service(event("e")))
        assert device.spool.backlog() == {"device.outbox": 1}


def without_route(plane: Contract, name: str) -> Contract:
    return replace(plane, routes=tuple(each for each in plane.routes if each.name != name))


class TestDamage:
    def damage(self, device: Device, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        """The next call of `method` finds what a bad block leaves."""

        def fail(*_: object, **__: object) -> None:
            raise SpoolCorruptError(device.path, "page 3 is torn")

        monkeypatch.setattr(device.spool, method, fail)

    @pytest.mark.parametrize("method", ["commit", "read"])
    def test_the_spool_is_opened_again_and_work_goes_on(
        self, device: Device, monkeypatch: pytest.MonkeyPatch, method: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        device.turn(device.from_service(event("first")))
        damaged = device.spool
        self.damage(device, monkeypatch, method)
        device.turn(device.from_service(event("fire", ALARM)))
        assert device.spool is not damaged
        assert "page 3 is torn" in caplog.text
        assert [each.refused for each in device.receipts()] == [None, None]
        device.turn()
        assert parse_event(device.delivered("call")[0]).id == "fire"
        device.turn(after=61.0)
        device.connect(CLOUD)
        device.acknowledge_all()
        assert {"first", "fire"} <= {id for batch in device.uplinked() for id in batch}
        assert device.spool.backlog()["device.outbox"] == 0

    def test_a_disk_that_fails_for_good_ends_it(
        self, device: Device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.damage(device, monkeypatch, "commit")
        monkeypatch.setattr("edge.forwarder.Spool", _Broken)
        with pytest.raises(SpoolError, match="no such disk"):
            device.turn(device.from_service(event("e")))
        assert device.local.last.acknowledged == []

    def test_a_file_that_is_really_damaged_is_recovered_and_reported(self, tmp_path: Path) -> None:
        device = Device(tmp_path / "spool.db")
        device.connect(LOCAL)
        for batch in range(20):
            device.turn(*(device.from_service(event(f"e{batch}-{n}", pad="x" * 500)) for n in range(50)))
        epoch = device.spool.epoch
        device.crash()
        raw = bytearray(device.path.read_bytes())
        middle = len(raw) // 2
        raw[middle : middle + 40_000] = b"\xa5" * 40_000
        device.path.write_bytes(raw)
        device.start()
        device.connect()
        device.turn(device.from_service(event("fire", ALARM)))
        device.acknowledge_all()
        for _ in range(3):
            device.turn(after=61.0)
        assert device.spool.epoch != epoch
        assert parse_event(device.delivered("call")[-1]).id == "fire"
        started = [
            each
            for wire in device.cloud.all
            for _, _, payload in wire.published
            for each in device.unpacked(payload)
            if each.type == STARTED
        ] + [
            parse_event(each.json)
            for each in Lane(device.spool, "device.outbox", 1).unsent()
            if STARTED in each.json
        ]
        assert started[0].data()["birth"] == "recovered"
        assert started[0].data()["lost_epoch"] == epoch
        device.crash()


class _Broken(Spool):
    def __init__(self, path: Path, **_: object) -> None:
        raise SpoolError(path, "no such disk", "replace it")
