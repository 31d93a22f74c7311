"""Two versions in force: a router judges an event by the contract under which its device accepted it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from eventplane.contract import Contract
from eventplane.contract.publication import CONTRACT, Head, contract_id, published, read_head
from eventplane.dead_letter import Refusal
from eventplane.envelope import Envelope, pack_texts
from eventplane.ingest import OPERATOR, IngestFrame, frame_text
from eventplane.names import FOLLOWED_CONTRACT
from eventplane.reasons import Reason
from lambdas.router.active_contract import RETRY_MS, ActiveContract
from lambdas.router.engine import RoutingEngine
from lambdas.router.service import RouterService
from tests.small_contract import with_changes
from tests.unit.lambdas.support import (
    ALARM,
    DAWN,
    INTERVAL_MS,
    NOW_MS,
    READING,
    TABLE,
    Cloud,
    event,
    frame,
    invocation,
    message,
    seen,
    stamped,
    with_route,
    with_sends,
)
from tests.unit.lambdas.test_active_contract import failing, put, with_nobody

NEW_TYPE = "org.example.new"


def candidate_of(contract: Contract) -> Contract:
    """The contract with a new type that a service on the device may send."""
    wider = with_route(contract, "new", "family-app.inbox", NEW_TYPE)
    sends = contract.participants["voice-service"].sends or ()
    return with_sends(wider, "voice-service", *sends, NEW_TYPE)


class Plane:
    """The cloud with a router that has just started, and a candidate beside the contract in force."""

    def __init__(self, cloud: Cloud, candidate: Contract | None = None) -> None:
        self.cloud = cloud
        self.new = candidate or candidate_of(cloud.contract)
        self.client = failing(cloud)
        cloud.offer(self.new)
        self.start()

    def start(self) -> None:
        """Start the router again."""
        self.in_force: ActiveContract[RoutingEngine] = self.cloud.in_force(self.client)
        self.router: RouterService = self.cloud.router(engine=self.in_force.engine)

    def head(self, version: str = "", candidate: str | None = None) -> None:
        base = self.cloud.contract.version
        self.cloud.contracts.heads.force(Head(base, version or base, None, DAWN, candidate))

    def later(self) -> None:
        self.cloud.clock.now_ms += INTERVAL_MS

    def route(self, *events: Envelope, client: str = "home-1", principal: str = "c") -> frozenset[str]:
        """Route a frame of `events`; return what is redelivered."""
        payload = pack_texts(each.json for each in events)
        body = frame_text(IngestFrame(payload, "topic", client, principal, NOW_MS))
        return self.router.process([message("m", body)], invocation())

    def versions(self) -> dict[str, set[str]]:
        """The contracts that decided, by the events' ids."""
        found: dict[str, set[str]] = {}
        for each in self.cloud.decisions():
            found.setdefault(each["id"], set()).add(each["contract_version"])
        return found

    def named(self, id: str, type: str = READING, version: str = "") -> Envelope:
        """An event that a device accepted under the candidate, or another version."""
        return event(id, type, **{FOLLOWED_CONTRACT: version or self.new.version})


@pytest.fixture
def plane(cloud: Cloud) -> Plane:
    return Plane(cloud)


def test_each_event_is_judged_by_its_own_version(plane: Plane) -> None:
    old, new = plane.cloud.contract.version, plane.new.version
    unnamed = event("unnamed")
    forged = plane.named("forged", version="0" * 16)
    assert not plane.route(unnamed, plane.named("named"), forged, plane.named("alarm", ALARM))
    assert plane.versions() == {"unnamed": {old}, "named": {new}, "forged": {old}, "alarm": {new}}


def test_only_its_own_devices_have_the_rights_of_a_candidate(plane: Plane) -> None:
    others = event("other", NEW_TYPE)
    plane.route(plane.named("ours", NEW_TYPE), others)
    found = {
        (each["id"], each["route"], each["outcome"])
        for each in plane.cloud.decisions()
        if each["type"] == NEW_TYPE
    }
    assert found == {("ours", "new", "delivered"), ("other", None, "dead_lettered")}


def test_a_cloud_service_names_no_version(plane: Plane) -> None:
    in_force = plane.cloud.in_force(source="care-analytics.outbox")
    router = plane.cloud.router(engine=in_force.engine)
    assert not router.process([message("m", plane.named("e").json)], invocation())
    assert {version for each in plane.versions().values() for version in each} == {
        plane.cloud.contract.version
    }


def test_a_version_that_the_head_does_not_name_is_never_read(plane: Plane) -> None:
    stored = with_route(plane.cloud.contract, "stored")
    plane.cloud.contracts.contracts.force(published(stored))
    plane.route(plane.named("e", version=stored.version))
    assert plane.versions()["e"] == {plane.cloud.contract.version}
    # The head and the candidate.
    assert plane.client.asked.count(("get_item", TABLE)) == 2


@pytest.mark.parametrize("is_taken", [True, False])
def test_the_end_of_a_roll_out_is_seen_at_the_next_look(plane: Plane, is_taken: bool) -> None:
    plane.route(plane.named("before"))
    last = plane.new.version if is_taken else plane.cloud.contract.version
    plane.head(version=last)
    plane.later()
    # An event that waited on the device is judged by what is in force when it comes.
    plane.route(plane.named("late"), event("unnamed"))
    assert plane.versions() == {"before": {plane.new.version}, "late": {last}, "unnamed": {last}}


def test_the_end_is_seen_though_the_next_candidate_cannot_be_read(plane: Plane) -> None:
    plane.route(plane.named("before"))
    plane.head(candidate="1" * 16)
    plane.later()
    plane.route(plane.named("late"))
    assert plane.versions()["late"] == {plane.cloud.contract.version}


def test_a_candidate_that_is_taken_is_not_read_again(plane: Plane) -> None:
    plane.route(plane.named("before"))
    plane.head(version=plane.new.version)
    plane.cloud.contracts.contracts.discard(contract_id(plane.new.version))
    plane.later()
    assert seen(plane.in_force) == plane.new


def test_a_device_goes_back_and_forth(plane: Plane) -> None:
    old, new = plane.cloud.contract.version, plane.new.version
    plane.route(plane.named("1"), event("2"), plane.named("3"))
    assert plane.versions() == {"1": {new}, "2": {old}, "3": {new}}


def test_a_message_put_back_is_judged_by_its_version(plane: Plane) -> None:
    plane.route(plane.named("e"), principal=OPERATOR)
    assert plane.versions()["e"] == {plane.new.version}


def _damaged(plane: Plane) -> None:
    put(plane.cloud, TABLE, CONTRACT.key_of(contract_id(plane.new.version)), compiled={"B": b"not zlib"})


def _without_queue(plane: Plane) -> None:
    plane.new = with_route(with_nobody(plane.cloud.contract), "lost", "nobody.inbox")
    plane.cloud.offer(plane.new)


@pytest.mark.parametrize("spoil", [_damaged, _without_queue])
def test_a_candidate_that_cannot_be_used_replaces_nothing(
    plane: Plane, spoil: Callable[[Plane], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    monkeypatch.setattr("lambdas.router.active_contract.count", counted.append)
    spoil(plane)
    assert not plane.route(plane.named("e", ALARM))
    assert plane.versions()["e"] == {plane.cloud.contract.version}
    assert counted == ["ContractRefused"]
    plane.new = candidate_of(plane.cloud.contract)
    plane.cloud.offer(plane.new)
    plane.later()
    plane.route(plane.named("again"))
    assert plane.versions()["again"] == {plane.new.version}


def test_a_cold_start_without_tables_decides_nothing_by_a_candidate(plane: Plane) -> None:
    plane.client.targets = {TABLE}
    assert plane.route(plane.named("e"), plane.named("alarm", ALARM)) == {"m"}
    # Urgent events do not wait; the message comes again.
    assert plane.versions() == {"alarm": {plane.cloud.contract.version}}
    plane.client.targets.clear()
    plane.cloud.clock.now_ms += RETRY_MS
    assert not plane.route(plane.named("e"), plane.named("alarm", ALARM))
    assert plane.versions()["alarm"] >= {plane.new.version}
    assert plane.versions()["e"] == {plane.new.version}


def test_subscriptions_hold_for_both_versions(plane: Plane) -> None:
    plane.cloud.subscribe("news", ALARM)
    plane.route(plane.named("named", ALARM), event("unnamed", ALARM))
    routes = {(each["id"], each["route"]) for each in plane.cloud.decisions()}
    assert {(id, "family-app-subscribes-news") for id in ("named", "unnamed")} <= routes


def test_a_router_of_another_deployment_has_no_candidate(plane: Plane) -> None:
    plane.cloud.contract = with_route(plane.cloud.contract, "deployed")
    plane.start()
    plane.route(plane.named("e"))
    assert plane.versions()["e"] == {plane.cloud.contract.version}


def test_a_channel_is_as_the_deciding_contract_has_it(cloud: Cloud) -> None:
    packed = with_changes(
        with_route(cloud.contract, "packs", "family-app.inbox", READING),
        {"participants/family-app/inbox/events_per_message": 10},
    )
    cloud.contract = with_route(cloud.contract, "packs", "family-app.inbox", READING)
    plane = Plane(cloud, packed)
    plane.route(*(plane.named(str(at)) for at in range(4)), event("5"))
    assert len(cloud.received("family-app.inbox")) == 2


def test_a_destination_of_the_candidate_alone(plane: Plane, cloud: Cloud) -> None:
    engine = seen_engine(plane)
    light = engine.lighter()
    assert light.contracts == engine.contracts
    # Of a version that is no longer known, as of a lighter contract, any channel serves.
    assert engine.channel("family-app.inbox", "gone").address == "family-app.inbox"
    with pytest.raises(KeyError):
        engine.channel("nobody.inbox", plane.new.version)


def seen_engine(plane: Plane) -> RoutingEngine:
    engine = plane.in_force.engine()
    assert isinstance(engine, RoutingEngine)
    return engine


def test_what_is_never_taken_is_a_dead_letter_of_its_contract(plane: Plane) -> None:
    engine = seen_engine(plane)
    body = frame(stamped(plane.named("e", ALARM)).without(["senderdevice"]))
    for step in engine.planner.plan(message("m", body), NOW_MS):
        assert step.record.contract_version == plane.new.version
        dead = [*engine.planner.dead(step, Refusal(Reason.NOT_TAKEN, ""), NOW_MS)]
        assert {each.record.contract_version for each in dead} == {plane.new.version}


def test_the_archive_has_each_head_and_the_candidate(plane: Plane) -> None:
    plane.route(event("one"))
    plane.head()
    plane.later()
    plane.route(event("two"))
    plane.cloud.decisions()
    heads = [read_head(plane.cloud.read(each)) for each in plane.cloud.keys("contracts/heads/")]
    assert {each.candidate for each in heads} == {plane.new.version, None}
    assert plane.cloud.read(f"contracts/{plane.new.version}.json") == plane.new.canonical


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b"[]",
        b"no JSON",
        b'{"base":"a","version":"b","previous":null,"candidate":3,"published_at":"2026-01-01T00:00:00Z"}',
        b'{"base":"a","version":null,"previous":null,"candidate":"c","published_at":"2026-01-01T00:00:00Z"}',
        b'{"base":"a","version":"b","previous":null,"candidate":"c","published_at":"yesterday"}',
    ],
)
def test_what_is_no_head_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"head|members|Expecting"):
        read_head(text)


def test_a_payload_is_checked_by_its_own_version(cloud: Cloud) -> None:
    strict = with_changes(cloud.contract, {f"event_types/{READING}/schema_check": "strict"})
    plane = Plane(cloud, strict)
    wrong = replace(plane.named("e"), json=plane.named("e").json.replace('"value":72', '"value":"no"'))
    plane.route(wrong)
    outcomes = {each["reason"] for each in cloud.decisions() if each["id"] == "e"}
    assert plane.versions()["e"] == {strict.version}
    assert outcomes == {"payload_invalid"}
