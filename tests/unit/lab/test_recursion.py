"""No chain of messages that AWS Lambda counts stops work for a large fleet, or a long conversation."""

import json
from collections import Counter
from functools import partial
from random import Random

import pytest

from eventplane.contract import Priority, compile_contract, contract_document
from eventplane.device_record import REGISTRY
from eventplane.downlink.table import fleet_reset
from eventplane.envelope import parse_event, write_event
from eventplane.records import Records
from eventplane_aws.rules import LAMBDA_CHAIN
from lab.histories.cloud import PLANE, CloudModel
from lab.histories.engine import Engine
from lab.histories.function import FunctionModel
from lab.histories.wires import CurrentFaults
from lab.histories.wiring import Wiring
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.queue_function import QueueReader
from parts.fleet.lifecycle import grouped
from tests.plane import shipped_contract
from tests.unit.lambdas.downlink.world import KEY_OF_PULSE, group, state

WITHIN_S = 150.0


@pytest.fixture
def engine() -> Engine:
    return Engine()


def ended(cloud: CloudModel) -> list[str]:
    """The notes of chains that AWS Lambda ended."""
    return [each.lane for each in cloud.engine.notes if each.text == "a chain of messages is ended"]


@pytest.mark.long
def test_a_fleet_of_10000_is_reached(engine: Engine) -> None:
    document, things = contract_document(shipped_contract()), [f"home-{each}" for each in range(10_000)]
    document["participants"]["carers"]["may_address"] = "everyone"
    contract = compile_contract(document, "test")
    cloud = CloudModel(engine, contract, CurrentFaults(engine, Random(0)), things)
    fleet = Records(cloud.tables("test"), "fleet", REGISTRY)
    for each in (things[at] for at in range(777, 10_000, 1_000)):
        known = fleet.read(each)
        assert known is not None
        assert fleet.write(grouped(known, frozenset({"pilot"}), engine.now_ms))
    Wiring(cloud).start()
    inbox = cloud.inboxes[contract.device.inbox.address]

    def versions_after(url: str, order: str) -> Counter[tuple[int, bool]]:
        cloud.sqs.send_message(QueueUrl=url, MessageBody=order)
        engine.run(engine.now_s + WITHIN_S)
        waiting = [each for each in cloud.unacknowledged() if each.message]
        return Counter((each.message.version, each.reset > 0) for each in waiting if each.message)

    assert versions_after(inbox, state(1, "*")) == {(1, False): 10_000}
    assert versions_after(inbox, group(2, "pilot")) == {(1, False): 9_990, (2, False): 10}
    reset = json.dumps(fleet_reset(KEY_OF_PULSE))
    assert versions_after(cloud.work, reset) == {(0, True): 10_000}
    assert ended(cloud) == []


SERVICES = [f"s{each}" for each in range(10)]
TURNS = 50


@pytest.mark.parametrize("may_recur", [False, True])
def test_a_shared_router_ends_no_talk(engine: Engine, may_recur: bool) -> None:
    document = contract_document(shipped_contract())
    for each in SERVICES:
        type = f"org.example.{each}.v1"
        document["participants"][each] = {"kind": "cloud_service", "description": "d"}
        document["event_types"][type] = {"description": "d"}
        document["routes"][f"to-{each}"] = {"filter": {"exact": {"type": type}}, "to": f"{each}.inbox"}
    contract = compile_contract(document, "test")
    cloud = CloudModel(engine, contract, CurrentFaults(engine, Random(0)), [])
    wiring, turns = Wiring(cloud), []

    def say(number: int) -> None:
        """Turn `number`: the service in turn addresses the next one."""
        to = SERVICES[(number + 1) % len(SERVICES)]
        names = {"id": str(number), "source": "/s", "type": f"org.example.{to}.v1"}
        outbox = cloud.outboxes[SERVICES[number % len(SERVICES)]]
        cloud.sqs.send_message(QueueUrl=outbox, MessageBody=write_event(names, {}).json)

    def answer(messages: list[QueueMessage], _: Invocation) -> frozenset[str]:
        for each in messages:
            turns.append(int(parse_event(each.body).id))
            if turns[-1] + 1 < TURNS:
                say(turns[-1] + 1)
        return frozenset()

    queues = {
        cloud.outboxes[each].rpartition("/")[2]: contract.participants[each].outbox for each in SERVICES
    }
    router = partial(wiring._router, sources=queues, priority=Priority.NORMAL)
    for each in SERVICES:
        FunctionModel(cloud, "router", cloud.outboxes[each], router, PLANE.router, may_recur=may_recur)
        service = cloud.inboxes[f"{each}.inbox"]
        FunctionModel(cloud, each, service, lambda _: QueueReader(answer), PLANE.downlink.reader)
    say(0)
    engine.run(WITHIN_S)
    assert turns == [*range(TURNS if may_recur else LAMBDA_CHAIN.most)]
    assert ended(cloud) == ([] if may_recur else ["router"])
    dropped = [cloud.sqs.bodies(f"{url}-dlq") for url in cloud.outboxes.values()]
    assert sum(map(len, dropped)) == len(ended(cloud))
