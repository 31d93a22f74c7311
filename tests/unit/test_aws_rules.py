"""The simulator refuses what AWS refuses, and what the plane declares for itself keeps AWS's rules."""

from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest

from edge.settings import CloudSettings
from eventplane.downlink.desired import MAX_WAITING_BYTES
from eventplane.downlink.wire import MAX_KEY_PART
from eventplane.ingest import IngestFrame, frame_text
from eventplane.limits import MAX_PAYLOAD_BYTES, MAX_SENDER_CHARACTERS
from eventplane.topics import basic_ingest_topic, device_topic
from eventplane_aws import rules
from eventplane_aws.rules import RULES, Rule
from eventplane_client.reader import LONG_POLL_S, PREFETCH
from eventplane_client.settings import ClientSettings
from eventplane_mqtt.codec import encode_connect, encode_publish, encode_subscribe, topic_name
from lab.histories.cloud import PLANE, CloudModel
from lab.histories.engine import Engine
from lab.histories.function import FunctionModel
from lab.histories.wires import CurrentFaults
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.queue_function import QueueReader
from parts.discovery_api.handler import MAX_BODY_BYTES
from parts.presence.timer_queue import MAX_DELAY_S
from parts.replay.order import MAX_ORDER_BYTES
from parts.simulate.broker import ModelLink
from stacks.quotas import QUOTAS
from stacks.rules import SIZES
from tests.aws_rules import CASES, answer, make_resources
from tests.fakes.sqs import FakeMessage, FakeSqs
from tests.plane import shipped_contract


@pytest.fixture
def cloud() -> CloudModel:
    engine = Engine()
    return CloudModel(engine, shipped_contract(), CurrentFaults(engine, Random(0)), [])


REFUSED_BY_MODELS = [each for each in CASES if "simulator" in each.enforced]


@pytest.mark.parametrize("rule", REFUSED_BY_MODELS, ids=lambda rule: rule.name)
def test_a_model_refuses_as_aws_documents(cloud: CloudModel, rule: Rule) -> None:
    def client(service: str) -> Any:
        return cloud.client("test", service)

    make_resources(client)
    assert [answer(client, CASES[rule](most)) for most in (rule.most, rule.most + 1)] == ["", rule.code]


@pytest.mark.parametrize(
    ("rule", "name", "wait_s", "code"),
    [
        (rules.SQS_IN_FLIGHT, "queue", 0, rules.SQS_IN_FLIGHT.code),
        (rules.SQS_IN_FLIGHT, "queue", 1, ""),
        (rules.SQS_FIFO_IN_FLIGHT, "queue.fifo", 0, ""),
    ],
)
def test_a_full_queue_gives_no_more(rule: Rule, name: str, wait_s: int, code: str) -> None:
    sqs = FakeSqs()
    attributes = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    waiting = FakeMessage("w", "waits", {}, 0, 0, 0, group="w")
    in_flight = FakeMessage("f", "in flight", {}, 0, sqs.clock() + 60_000, 0, group="f", receives=1)
    receive = ("sqs", "receive_message", {"QueueUrl": url, "WaitTimeSeconds": wait_s, "VisibilityTimeout": 0})
    sqs.queue(url).messages = [in_flight] * rule.most + [waiting]
    assert answer(lambda _: sqs, receive) == code
    assert waiting.receives == 0
    sqs.queue(url).messages.pop(0)
    assert answer(lambda _: sqs, receive) == ""
    assert waiting.receives == 1


class Device:
    """A device that is connected to the simulated IoT Core."""

    def __init__(self, cloud: CloudModel) -> None:
        self.is_open = True
        self.answers: list[int] = []
        link = cloud.iot.broker.open(self)
        assert link is not None
        self._link: ModelLink = link
        self._link.take(encode_connect(4, "d", clean=True, keepalive_s=60))

    def take(self, data: bytes) -> None:
        self.answers.append(data[0] >> 4)

    def hung_up(self) -> None:
        self.is_open = False

    def publish(self, topic: str, payload: bytes = b"x") -> bool:
        """Whether IoT Core acknowledges a publish."""
        self.answers.clear()
        self._link.take(encode_publish(4, topic_name(topic), payload, 1))
        return self.answers == [4]


@pytest.mark.parametrize(
    "rule", [rules.IOT_MESSAGE, rules.IOT_TOPIC, rules.IOT_LEVELS], ids=lambda rule: rule.name
)
def test_iot_core_ends_a_wrong_connection(cloud: CloudModel, rule: Rule) -> None:
    device = Device(cloud)
    for most, is_taken in ((rule.most, True), (rule.most + 1, False)):
        _, _, request = CASES[rule](most)
        # What Basic Ingest puts in front does not count.
        assert device.publish(f"$aws/rules/ingest/{request['topic']}", request["payload"]) is is_taken
        assert device.is_open is is_taken


def test_iot_core_bounds_publishes(cloud: CloudModel) -> None:
    device, topic = Device(cloud), basic_ingest_topic("ingest", "d")
    assert all(device.publish(topic) for _ in range(rules.IOT_PUBLISHES.most))
    assert not device.publish(topic)
    cloud.engine.run(1.0)
    assert device.is_open
    assert device.publish(topic)


def test_unacknowledged_publishes_are_bounded(cloud: CloudModel) -> None:
    device = Device(cloud)
    device._link.take(encode_subscribe(4, 1, ["d"], 1))
    device.answers.clear()
    for _ in range(rules.IOT_UNACKNOWLEDGED.most + 1):
        cloud.iot.publish(topic="d", qos=1, payload=b"x")
    assert len(device.answers) == rules.IOT_UNACKNOWLEDGED.most


def run(cloud: CloudModel, process: Any, bodies: list[str], **size: int) -> None:
    """Let a function process messages in batches of a `size`."""
    reader = replace(PLANE.downlink.reader, **size)
    FunctionModel(cloud, "reader", cloud.work, lambda _: QueueReader(process), reader)
    for each in bodies:
        cloud.sqs.send_message(QueueUrl=cloud.work, MessageBody=each)
    cloud.engine.run(1_000.0)


def test_a_batch_of_a_function_fits_a_call(cloud: CloudModel) -> None:
    batches: list[int] = []

    def process(messages: list[QueueMessage], _: Invocation) -> frozenset[str]:
        batches.append(sum(len(each.body) for each in messages))
        return frozenset()

    run(cloud, process, ["x" * rules.SQS_MESSAGE.most] * 8, batch_size=100, batch_window_s=10)
    assert [each // rules.SQS_MESSAGE.most for each in batches] == [6, 2]
    assert max(batches) <= rules.LAMBDA_BATCH.most


def test_a_new_account_runs_few_functions(cloud: CloudModel) -> None:
    running, most, heard = 0, 0, 0

    def process(messages: list[QueueMessage], _: Invocation) -> frozenset[str]:
        nonlocal running, most, heard
        running += 1
        most = max(most, running)
        cloud.engine.sleep(5.0)
        running -= 1
        heard += len(messages)
        return frozenset()

    run(cloud, process, ["x"] * (2 * rules.LAMBDA_CONCURRENCY.most), batch_size=1, max_concurrency=100)
    assert most == rules.LAMBDA_CONCURRENCY.most
    assert heard == 2 * rules.LAMBDA_CONCURRENCY.most
    throttled = [each for each in cloud.engine.notes if each.text == rules.LAMBDA_CONCURRENCY.answer]
    assert throttled


THING = "x" * MAX_SENDER_CHARACTERS
FRAME = IngestFrame(bytes(MAX_PAYLOAD_BYTES), device_topic(THING, "outbox"), THING, "a" * 64, 0)
DEFAULTS = CloudSettings(host="iot")
CLIENT = {each.name: each.metadata["accepts"] for each in fields(ClientSettings)}


@pytest.mark.parametrize(
    ("rule", "ours"),
    [
        (rules.IOT_PUBLISHES, DEFAULTS.publishes_per_s),
        (rules.IOT_THROUGHPUT, DEFAULTS.bytes_per_s),
        (rules.IOT_UNACKNOWLEDGED, DEFAULTS.max_unacknowledged),
        (rules.IOT_TOPIC, len(FRAME.topic)),
        (rules.IOT_LEVELS, FRAME.topic.count("/")),
        (rules.SQS_MESSAGE, len(frame_text(FRAME))),
        (rules.SQS_MESSAGE, MAX_ORDER_BYTES),
        (rules.SQS_DELAY, MAX_DELAY_S),
        (rules.SQS_RECEIVE, PREFETCH),
        (rules.SQS_WAIT, LONG_POLL_S),
        (rules.SQS_VISIBILITY, CLIENT["gap_timeout_s"].high),
        (rules.SQS_IN_FLIGHT, CLIENT["most_held"].high),
        (rules.DYNAMODB_ITEM, MAX_WAITING_BYTES),
        (rules.DYNAMODB_SORT_KEY, 3 * (MAX_KEY_PART + 1)),
        (rules.LAMBDA_PAYLOAD, MAX_BODY_BYTES),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_the_plane_declares_for_itself_keeps_the_rule(rule: Rule, ours: float) -> None:
    assert 0 < ours <= rule.most


def test_each_rule_is_broken_by_a_test() -> None:
    own_tests = {
        *(rules.SQS_IN_FLIGHT, rules.SQS_FIFO_IN_FLIGHT, rules.IOT_PUBLISHES, rules.IOT_UNACKNOWLEDGED),
        *(rules.LAMBDA_CHAIN, rules.LAMBDA_BATCH, rules.LAMBDA_CONCURRENCY),
    }
    others = {each for each in RULES if each.enforced.startswith(("AWS alone: ", "preflight"))}
    assert {*SIZES, *CASES, *own_tests, *others} == {*RULES}
    assert all(each.enforced == "synthesis" and each.remedy for each in SIZES)
    assert all(each.answer and each.enforced != "synthesis" for each in RULES if each not in SIZES)
    assert len({each.name for each in RULES}) == len(RULES)
    assert all(each.source.startswith("https://docs.aws.amazon.com/") for each in (*RULES, *QUOTAS.values()))
