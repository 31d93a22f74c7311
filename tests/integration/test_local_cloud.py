"""The emulated cloud, its things and a home's broker work as the demo needs them."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from local.cloud import CloudEndpoint
from local.deploy import deploy
from local.errors import DeployError
from local.mosquitto import Broker
from local.network import Network
from local.process import Supervisor
from local.things import Thing, provision
from tests.eventually import eventually
from tests.integration.mqtt import SECONDS, TestClient

OWN = "test/${iot:Connection.Thing.ThingName}"


@pytest.fixture(scope="module")
def policy(emulator: CloudEndpoint) -> str:
    arn = f"arn:aws:iot:{emulator.region}:{emulator.account}"
    document = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": "iot:Connect",
                "Resource": f"{arn}:client/${{iot:Connection.Thing.ThingName}}",
                "Condition": {"Bool": {"iot:Connection.Thing.IsAttached": "true"}},
            },
            {"Effect": "Allow", "Action": ["iot:Publish", "iot:Receive"], "Resource": f"{arn}:topic/{OWN}/*"},
            {"Effect": "Allow", "Action": "iot:Subscribe", "Resource": f"{arn}:topicfilter/{OWN}/*"},
        ],
    }
    emulator.client("iot").create_policy(policyName="test-device", policyDocument=json.dumps(document))
    return "test-device"


@pytest.fixture(scope="module")
def things(
    emulator: CloudEndpoint, policy: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Thing, Thing]:
    directory = tmp_path_factory.mktemp("things")
    one, two = (
        provision(emulator, name, policy=policy, directory=directory / name)
        for name in ("test-one", "test-two")
    )
    return one, two


def test_iam_is_enforced(emulator: CloudEndpoint) -> None:
    iam = emulator.client("iam")
    iam.create_user(UserName="nobody")
    key = iam.create_access_key(UserName="nobody")["AccessKey"]
    nobody = CloudEndpoint(
        **{
            **vars(emulator),
            "access_key_id": key["AccessKeyId"],
            "secret_access_key": key["SecretAccessKey"],
        }
    )

    emulator.client("sqs").list_queues()
    with pytest.raises(ClientError, match="AccessDenied"):
        nobody.client("sqs").list_queues()


def test_a_private_key_is_readable_by_its_owner_only(things: tuple[Thing, Thing]) -> None:
    assert stat.S_IMODE(things[0].key.stat().st_mode) == 0o600


def test_device_publishes_to_its_own_topic(things: tuple[Thing, Thing]) -> None:
    with TestClient.of_thing(things[0]) as device:
        device.subscribe("test/test-one/in")

        assert device.publish("test/test-one/in", b"hello")
        assert device.arrived.wait(SECONDS)
        assert device.messages == [("test/test-one/in", b"hello")]


def test_another_devices_topic_is_refused_and_the_connection_closed(things: tuple[Thing, Thing]) -> None:
    one, two = things
    with TestClient.of_thing(two) as victim, TestClient.of_thing(one) as intruder:
        victim.subscribe("test/test-two/in")

        assert not intruder.publish("test/test-two/in", b"forged")
        assert intruder.disconnected.wait(SECONDS)

        assert victim.publish("test/test-two/in", b"own")
        assert victim.arrived.wait(SECONDS)
        assert victim.messages == [("test/test-two/in", b"own")]


def test_mutual_tls_passes_a_line_and_a_cut_is_noticed(things: tuple[Thing, Thing]) -> None:
    thing = things[0]
    with Network() as network:
        link = network.link(thing.host, thing.port)
        with TestClient(thing.name, thing.host, link.port, thing) as device:
            assert device.publish("test/test-one/out", b"through the line")
            link.cut()
            assert device.disconnected.wait(SECONDS)
        link.heal()
        with TestClient(thing.name, thing.host, link.port, thing) as device:
            assert device.publish("test/test-one/out", b"healed")
        assert link.bytes_up > 0
        assert link.bytes_down > 0


def test_broker_works_after_kill_and_restart_on_the_same_port(mosquitto: Callable[[str], Broker]) -> None:
    broker = mosquitto("home")
    with TestClient("service", "127.0.0.1", broker.port) as client:
        client.subscribe("outbox")
        assert client.publish("outbox", b"one")
        broker.child.kill()
        assert client.disconnected.wait(SECONDS)

    broker.child.start()

    with TestClient("service", "127.0.0.1", broker.port) as client:
        client.subscribe("outbox")
        assert client.publish("outbox", b"two")
        assert client.arrived.wait(SECONDS)
        assert client.messages == [("outbox", b"two")]


def test_broker_drops_nothing_while_the_forwarder_is_away(mosquitto: Callable[[str], Broker]) -> None:
    broker = mosquitto("home")
    payloads = [str(number).encode() for number in range(5_000)]  # the broker's default limit is 1,000
    with TestClient("forwarder", "127.0.0.1", broker.port, persistent=True) as forwarder:
        forwarder.subscribe("outbox")
    with TestClient("service", "127.0.0.1", broker.port) as service:
        assert service.publish_all("outbox", payloads)

    with TestClient("forwarder", "127.0.0.1", broker.port, persistent=True) as forwarder:
        assert eventually(lambda: len(forwarder.messages) >= len(payloads))
        assert [payload for _topic, payload in forwarder.messages] == payloads


def test_two_brokers_beside_each_other(mosquitto: Callable[[str], Broker]) -> None:
    one, two = mosquitto("one"), mosquitto("two")

    assert one.port != two.port
    assert one.child.running
    assert two.child.running


def test_an_app_is_deployed_with_its_assets(supervisor: Supervisor, emulator: CloudEndpoint) -> None:
    app = Path(__file__).parent / "tiny_app"

    outputs = deploy(supervisor, emulator, app=app)

    function = emulator.client("lambda")
    answer = function.invoke(FunctionName=outputs["Tiny"]["FunctionName"], Payload=b'{"a": 1}')
    assert json.load(answer["Payload"]) == {"a": 1}


def test_a_failed_deployment_tells_the_step_and_the_reason(
    supervisor: Supervisor, emulator: CloudEndpoint, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text("raise SystemExit('no such environment')")
    (tmp_path / "cdk.json").write_text('{"app": "python app.py"}')

    with pytest.raises(DeployError, match="no such environment") as caught:
        deploy(supervisor, emulator, app=tmp_path)

    assert caught.value.step == "synth"
