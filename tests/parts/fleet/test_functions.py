"""The provisioning hook, the rotation of certificates, and the snapshot of the fleet."""

import json
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from os import urandom
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from eventplane.archive_layout import FLEET_FOLDER
from eventplane.device_record import CLAIM, REGISTRY, Candidate, Device, FleetRecord, LifecycleState
from eventplane.envelope import parse_event
from lambdas.common.archive import Archiver
from lambdas.common.queue import QueueMessage
from lambdas.common.queue_function import queue_function
from parts.fleet import hook, rotation, snapshot
from parts.fleet.lifecycle import (
    HANDOVER_MS,
    MAX_CANDIDATES,
    MOST_TAKEOVERS,
    TAKEOVER_WINDOW_MS,
    condemned,
    decommissioned,
    made,
    quarantined,
)
from tests.dynamodb import records
from tests.fakes.iot import rule_failure
from tests.unit.lambdas.support import (
    BUCKET,
    NOW_MS,
    Cloud,
    LambdaContext,
    deploy,
    failures,
    figures,
    message,
    sqs_event,
)

TABLE, THING = "fleet", "home-1"
PROVISIONED = replace(made(THING, NOW_MS), state=LifecycleState.PROVISIONED)


def asked(*certificates: str, holder: str = CLAIM) -> tuple[Candidate, ...]:
    """Certificates that were registered and not seen yet."""
    return tuple(Candidate(each, NOW_MS, holder) for each in certificates)


class Fleet:
    """The registry, AWS IoT with the thing `THING`, and the functions."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.iot = cloud.aws.iot
        self.iot.create_thing(thingName=THING)
        self.registry = records(cloud.dynamodb, TABLE, REGISTRY)
        self.operations = cloud.sqs.create_queue(QueueName="outbox")["QueueUrl"]

    def certificate(self) -> str:
        """An active certificate of the thing."""
        created = self.iot.create_keys_and_certificate(setAsActive=True)
        self.iot.attach_thing_principal(thingName=THING, principal=created["certificateArn"])
        return str(created["certificateId"])

    @property
    def device(self) -> Device:
        found = self.registry.read(THING)
        assert found is not None
        return found

    def write(self, device: Device, **changes: Any) -> None:
        assert self.registry.write(replace(device, **changes))

    def handle(self, *messages: QueueMessage, remaining_ms: int = 30_000) -> dict[str, Any]:
        """What the rotation answers of messages."""
        context = LambdaContext(remaining_ms=remaining_ms)
        return queue_function(rotation.service)(sqs_event(*messages), context)  # type: ignore[no-any-return]

    def suspicions(self) -> list[tuple[str, str, str]]:
        """What operations were told: device, suspicion, certificate."""
        events = [parse_event(each) for each in self.cloud.sqs.take(self.operations)]
        assert {each.attributes["subject"] for each in events} <= {THING}
        return [tuple(each.data().values()) for each in events]

    def graces(self, delay_ms: int = 900_000) -> list[QueueMessage]:
        """The delayed messages of the function to itself."""
        assert all(
            each.visible_ms == each.sent_ms + delay_ms
            for each in self.cloud.sqs.queue(self.cloud.source).messages
        )
        return [message(str(at), body) for at, body in enumerate(self.cloud.sqs.take(self.cloud.source))]


@pytest.fixture
def fleet(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    settings = {
        "FLEET_TABLE": TABLE,
        "CERTIFICATE_ARNS": f"{cloud.aws.iot.arns}cert/",
        "SOURCE_QUEUE": cloud.source,
        "CERTIFICATE_GRACE_S": "900",
        "CERTIFICATE_MAX_AGE_DAYS": "100",
        "CONNECTIONS_QUEUE": cloud.source,
        "ARCHIVE_BUCKET": BUCKET,
    }
    deploy(monkeypatch, tmp_path, None, settings)
    monkeypatch.setattr(snapshot, "system_clock", lambda: 1_772_409_599_000)  # 2026-03-01T23:59:59Z
    monkeypatch.setattr(hook, "system_clock", lambda: NOW_MS)
    made = Fleet(cloud)
    monkeypatch.setenv("EVENTPLANE_OUTBOX_QUEUE", made.operations)
    return made


class TestHook:
    @staticmethod
    def asked(serial: Any = THING) -> dict[str, Any]:
        """What AWS IoT tells the hook."""
        return {
            "claimCertificateId": "the claim's",
            "certificateId": "a",
            "certificatePem": "-----BEGIN CERTIFICATE-----",
            "templateArn": "arn:aws:iot:us-east-1:000000000000:provisioningtemplate/fleet",
            "clientId": f"claim-{serial}",
            "parameters": {"SerialNumber": serial},
        }

    def test_manufactured_is_allowed(self, fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
        fleet.write(made(THING, NOW_MS))
        assert hook.handle(self.asked(), LambdaContext()) == {"allowProvisioning": True}
        assert (fleet.device.pending, fleet.device.registrations) == (("a",), 1)
        assert figures(capsys.readouterr().out) == {"RegistrationAllowed": 1}
        assert fleet.suspicions() == []

    @pytest.mark.parametrize(
        ("client", "since_ms", "suspicion", "is_allowed"),
        [
            ("renewal", NOW_MS - 50 * 86_400_000 + 1, "early_renewal", True),
            ("renewal", NOW_MS - 50 * 86_400_000, None, True),
            ("renewal", 0, None, True),
            ("claim", NOW_MS - 1, None, True),
            ("renewal", None, "condemned_certificate", False),
        ],
    )
    def test_a_thiefs_renewal_is_reported(
        self,
        fleet: Fleet,
        capsys: pytest.CaptureFixture[str],
        client: str,
        since_ms: int | None,
        suspicion: str | None,
        is_allowed: bool,
    ) -> None:
        device = replace(PROVISIONED, certificate="own", replacement_until_ms=NOW_MS + 1)
        is_bad = frozenset({"own"} if since_ms is None else ())
        fleet.write(condemned(device, is_bad, NOW_MS), certificate_since_ms=since_ms or 0)
        event = {**self.asked(), "clientId": f"{client}-{THING}", "claimCertificateId": "own"}
        assert hook.handle(event, LambdaContext()) == {"allowProvisioning": is_allowed}
        assert fleet.suspicions() == ([(THING, suspicion, "own")] if suspicion else [])
        assert ("KeySuspected" in capsys.readouterr().out) is bool(suspicion)

    def test_surplus_certificates_end_in_minutes(self, fleet: Fleet) -> None:
        registered = [fleet.certificate() for _ in range(MAX_CANDIDATES + 2)]
        fleet.write(replace(PROVISIONED, replacement_until_ms=NOW_MS + 1))
        for each in registered:
            event = {**self.asked(), "certificateId": each}
            assert hook.handle(event, LambdaContext()) == {"allowProvisioning": True}
        ends = fleet.graces(HANDOVER_MS)
        assert fleet.handle(*ends[:1]) == failures()
        # It may still be seen until it ends.
        own = fleet.device.surplus[0]
        assert fleet.handle(connected(own), *ends[1:]) == failures()
        assert (own, fleet.device.certificate) == (registered[2], own)
        assert [each for each, status in fleet.iot.statuses.items() if status == "ACTIVE"] == [own]

    @pytest.mark.parametrize("serial", [THING, "", None, 7, "x/y", "x" * 5000, ...])
    def test_an_unknown_device_is_refused(
        self, fleet: Fleet, serial: Any, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        event = {} if serial is ... else self.asked(serial)
        assert hook.handle(event, LambdaContext()) == {"allowProvisioning": False}
        (metric,) = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]
        (logged,) = [vars(each) for each in caplog.records if each.message == "registration refused"]
        assert metric["reason"] == logged["reason"] == "unknown"
        assert len(logged["thing"]) <= 256

    def test_without_the_registry_no_device_is_allowed(self, fleet: Fleet) -> None:
        fleet.cloud.dynamodb.delete_table(TableName=TABLE)
        with pytest.raises(ClientError, match="ResourceNotFoundException"):
            hook.handle(self.asked(), LambdaContext())


def connected(certificate: str, thing: str = THING) -> QueueMessage:
    return message(certificate, json.dumps({"thing": thing, "certificate": certificate}))


@pytest.mark.lost_answers
class TestRotation:
    def test_a_seen_certificate_becomes_current(self, fleet: Fleet) -> None:
        old, lost, new = (fleet.certificate() for _ in range(3))
        fleet.write(PROVISIONED, certificate=old, candidates=asked(new), replaced=frozenset({lost, "f" * 64}))
        lifecycle = {"clientId": THING, "principalIdentifier": new, "eventType": "connected"}
        redriven = message("m1", rule_failure(json.dumps(lifecycle).encode()))
        assert fleet.handle(redriven, redriven) == failures()
        device = fleet.device
        assert (device.certificate, device.pending) == (new, ())
        assert device.replaced == {old, lost, "f" * 64}
        assert fleet.iot.attached[THING] == {old, lost, new}
        # One that is gone is retired.
        assert fleet.handle(*fleet.graces()) == failures()
        assert (fleet.device.certificate, fleet.device.replaced) == (new, frozenset())
        assert fleet.iot.statuses == {old: "INACTIVE", lost: "INACTIVE", new: "ACTIVE"}
        assert fleet.iot.attached[THING] == {new}
        assert fleet.suspicions() == []

    def test_what_the_claim_registered_besides_is_revoked_at_once(self, fleet: Fleet) -> None:
        own, thiefs = fleet.certificate(), fleet.certificate()
        fleet.write(made(THING, NOW_MS), candidates=asked(own, thiefs))
        assert fleet.handle(connected(own)) == failures()
        assert (fleet.iot.statuses[thiefs], fleet.iot.attached[THING]) == ("REVOKED", {own})
        # Its registration was in flight.
        fleet.iot.update_certificate(certificateId=thiefs, newStatus="ACTIVE")
        assert fleet.handle(*fleet.graces(HANDOVER_MS)) == failures()
        assert (fleet.iot.statuses[thiefs], fleet.device.replaced) == ("REVOKED", frozenset())
        assert fleet.handle(connected(thiefs)) == failures()
        assert (fleet.device.certificate, fleet.device.condemned) == (own, {thiefs})
        assert fleet.suspicions() == [(THING, "condemned_certificate", thiefs)]

    def test_two_holders_of_a_name_are_reported(self, fleet: Fleet) -> None:
        old, new = fleet.certificate(), fleet.certificate()
        fleet.write(PROVISIONED, certificate=new, replaced=frozenset({old}))
        fleet.write(fleet.device, certificate_since_ms=NOW_MS - 500 - HANDOVER_MS)
        assert fleet.handle(connected(old)) == failures()
        assert fleet.suspicions() == []
        fleet.write(fleet.device, certificate_since_ms=NOW_MS - 501 - HANDOVER_MS)
        assert fleet.handle(*map(connected, (old, new, "f" * 64))) == failures()
        assert fleet.suspicions() == [(THING, "two_holders", old)]
        takeover = json.dumps({"thing": THING, "cause": "DUPLICATE_CLIENTID"})
        lifecycle = {"clientId": THING, "principalIdentifier": new, "disconnectReason": "DUPLICATE_CLIENTID"}
        both = takeover, rule_failure(json.dumps(lifecycle).encode())
        messages = [message(str(at), both[at % 2]) for at in range(2 * MOST_TAKEOVERS)]
        window_before = replace(messages[0], sent_at_ms=NOW_MS - 2 * TAKEOVER_WINDOW_MS)
        assert fleet.handle(window_before, *messages[1:MOST_TAKEOVERS]) == failures()
        assert (fleet.suspicions(), fleet.device.takeovers) == ([], MOST_TAKEOVERS - 1)
        assert fleet.handle(*messages, message("x", takeover.replace(THING, "home-2"))) == failures()
        assert fleet.suspicions() == [(THING, "two_holders", new)]

    def test_old_news_retires_nothing(self, fleet: Fleet) -> None:
        old, new = fleet.certificate(), fleet.certificate()
        device = replace(PROVISIONED, certificate=old, candidates=asked(new))
        fleet.write(device)
        outdated = [json.dumps({"thing": each, "retire": [old, new]}) for each in (THING, "home-2")]
        assert fleet.handle(connected(old), *map(message, "12", outdated)) == failures()
        assert (fleet.graces(), fleet.iot.attached[THING]) == ([], {old, new})
        assert replace(fleet.device, revision=0) == device

    def test_an_ending_one_is_not_used(self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
        own, other = fleet.certificate(), fleet.certificate()
        fleet.write(PROVISIONED, certificate=own, candidates=asked(other), replaced=frozenset({other}))
        update = fleet.iot.update_certificate

        def while_it_connects(**request: Any) -> Any:
            assert fleet.handle(connected(other)) == failures()
            return update(**request)

        monkeypatch.setattr(fleet.iot, "update_certificate", while_it_connects)
        over = message("1", json.dumps({"thing": THING, "retire": [other]}))
        assert fleet.handle(over) == failures()
        assert fleet.iot.statuses[fleet.device.certificate or ""] == "ACTIVE"

    def test_a_decommissioned_device_that_connects_is_locked_out(self, fleet: Fleet) -> None:
        late = fleet.certificate()
        device = replace(made(THING, NOW_MS), candidates=asked(late))
        fleet.write(decommissioned(device, "", NOW_MS))
        assert fleet.handle(connected(late)) == failures()
        assert (fleet.iot.statuses[late], fleet.iot.attached[THING]) == ("INACTIVE", set())
        assert fleet.suspicions() == [(THING, "decommissioned_device", late)]

    @pytest.mark.parametrize(
        "device",
        [
            PROVISIONED,
            quarantined(PROVISIONED, frozenset(), "", NOW_MS),
            decommissioned(PROVISIONED, "", NOW_MS),
            replace(PROVISIONED, takeovers=MOST_TAKEOVERS - 1),
        ],
    )
    def test_an_unknown_certificate_is_anothers(self, fleet: Fleet, device: Device) -> None:
        foreign = fleet.certificate()
        fleet.write(device)
        window = device.takeovers and NOW_MS // TAKEOVER_WINDOW_MS
        fleet.write(fleet.device, takeover_window=window)
        before = fleet.device
        takeover = {"thing": THING, "cause": "DUPLICATE_CLIENTID", "certificate": foreign}
        assert fleet.handle(connected(foreign), message("m2", json.dumps(takeover))) == failures()
        assert (fleet.iot.statuses, fleet.iot.attached[THING]) == ({foreign: "ACTIVE"}, {foreign})
        assert (fleet.device, fleet.suspicions(), fleet.graces()) == (before, [], [])

    @pytest.mark.parametrize("moment", ["before", "describe_certificate", "update_certificate"])
    @pytest.mark.parametrize("is_quarantined", [False, True])
    def test_a_certificate_that_is_revoked_meanwhile_stays_revoked(
        self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, moment: str, is_quarantined: bool
    ) -> None:
        own, bad = fleet.certificate(), fleet.certificate()
        device = replace(PROVISIONED, certificate=own, replaced=frozenset({bad}))
        fleet.write(quarantined(device, frozenset(), "", NOW_MS) if is_quarantined else device)
        update, real = fleet.iot.update_certificate, getattr(fleet.iot, moment, None)

        def condemning(**request: Any) -> Any:
            answer = real(**request) if moment == "describe_certificate" and real else None
            monkeypatch.setattr(fleet.iot, moment, real)
            fleet.registry.change(lambda found: condemned(found or device, frozenset({bad}), NOW_MS), THING)
            update(certificateId=bad, newStatus="REVOKED")
            return answer or (real and real(**request))

        if real:
            monkeypatch.setattr(fleet.iot, moment, condemning)
        else:  # by hand
            update(certificateId=bad, newStatus="REVOKED")
        over = message("1", json.dumps({"thing": THING, "retire": [bad]}))
        assert fleet.handle(connected(bad) if is_quarantined else over) == failures()
        assert fleet.iot.statuses[bad] == "REVOKED"

    def test_a_quarantined_device_is_locked_out(self, fleet: Fleet) -> None:
        old, in_flight = fleet.certificate(), fleet.certificate()
        device = replace(PROVISIONED, certificate=old, candidates=asked(in_flight))
        fleet.write(quarantined(device, frozenset({old}), "it floods", NOW_MS))
        assert fleet.handle(connected(in_flight)) == failures()
        assert (fleet.iot.statuses[in_flight], fleet.iot.attached[THING]) == ("INACTIVE", {old, in_flight})
        after = fleet.device
        assert (after.state, after.suspended) == (LifecycleState.QUARANTINED, {old, in_flight})
        assert hook.handle(TestHook.asked(), LambdaContext()) == {"allowProvisioning": False}

    def test_unknown_devices_are_left_alone(self, fleet: Fleet) -> None:
        by_hand = fleet.certificate()
        assert fleet.handle(connected(by_hand), connected("x", "claim-home-2")) == failures()
        assert fleet.iot.statuses[by_hand] == "ACTIVE"

    def test_malformed_messages_come_again_alone(self, fleet: Fleet) -> None:
        new = fleet.certificate()
        fleet.write(made(THING, NOW_MS), candidates=asked(new))
        assert fleet.handle(connected(new), remaining_ms=29_999) == failures(new)
        assert fleet.device.pending == (new,)
        bad = [message(id, body) for id, body in (("1", "?"), ("2", "{}"), ("3", "[]"))]
        assert fleet.handle(*bad, connected(new)) == failures("1", "2", "3")
        assert fleet.device.certificate == new


@pytest.mark.lost_answers
class TestSnapshot:
    KEY = "fleet/date=2026-03-01/hour=23/snapshot.json.gz"

    def lines(self, fleet: Fleet) -> list[dict[str, Any]]:
        return sorted(fleet.cloud.lines(self.KEY), key=lambda each: str(each["thing"]))

    def test_devices_in_service_are_written(self, fleet: Fleet) -> None:
        fleet.write(made("home-9", 1))
        assert snapshot.handle({}, LambdaContext()) == {"devices": 0}
        assert fleet.cloud.keys() == []
        for number, state in enumerate(LifecycleState):
            fleet.write(made(f"home-{number}", 1), state=state, since_ms=number)
        damaged = {"thing": {"S": "damaged"}, "registrations": {"S": "x"}}
        fleet.cloud.dynamodb.put_item(TableName=TABLE, Item=damaged)
        # One that is repeated within the hour replaces itself.
        for _ in range(2):
            assert snapshot.handle({}, LambdaContext()) == {"devices": 2}
        assert fleet.cloud.keys() == [self.KEY]
        assert self.lines(fleet) == [
            {"thing": "home-1", "state": "provisioned", "since_ms": 1},
            {"thing": "home-2", "state": "quarantined", "since_ms": 2},
        ]
        assert [each.name for each in FLEET_FOLDER.columns] == [each.name for each in fields(FleetRecord)]

    def test_a_registry_that_fails_half_way_leaves_no_object(self, fleet: Fleet) -> None:
        def half() -> Iterator[FleetRecord]:
            yield FleetRecord("home-1", LifecycleState.PROVISIONED, 1)
            raise ClientError({"Error": {"Code": "ThrottlingException"}}, "Scan")

        archive = Archiver(fleet.cloud.s3, BUCKET, urandom)
        with pytest.raises(ClientError, match="Throttling"):
            snapshot.FleetSnapshot(read=half, archive=archive, clock=fleet.cloud.clock).write()
        assert fleet.cloud.keys() == []

    def test_an_item_without_since_ms_has_the_time_of_its_last_change(self, fleet: Fleet) -> None:
        item = REGISTRY.to_item(replace(made("home-1", 7), state=LifecycleState.PROVISIONED))
        del item["since_ms"], item["certificate_since_ms"]
        fleet.cloud.dynamodb.put_item(TableName=TABLE, Item=item)
        snapshot.handle({}, LambdaContext())
        assert self.lines(fleet) == [asdict(FleetRecord("home-1", LifecycleState.PROVISIONED, 7))]
        assert fleet.device.certificate_since_ms == 7
