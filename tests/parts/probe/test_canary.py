"""The canary: its publish over a WebSocket, its alarm, its check of all queues, and its function."""

from collections.abc import Callable
from functools import partial
from os import urandom
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError

from eventplane.envelope import Sender, parse_event, write_event
from eventplane.ingest import IngestFrame, frame_text
from eventplane.names import CANARY_ALARM, CANARY_CLIENT
from eventplane.sending import stamp_sender
from eventplane_mqtt.probe import ConnectionEndedError
from lambdas.common import system
from lambdas.common.metrics import metrics
from parts.probe import handler
from parts.probe.handler import Backlogs, Canary, CanaryReport
from parts.probe.settings import CanarySettings
from tests.fakes.faults import FailingClient
from tests.unit.lambdas.support import NOW_MS, Cloud, LambdaContext, deploy, event, figures, message

PREFIX = "eventplane-dev-"
OWN = Sender(CANARY_CLIENT)


def written() -> dict[str, list[float]]:
    """The values of metrics."""
    return {name: each["Value"] for name, each in metrics.provider.metric_set.items()}


class Inbox:
    """The canary's inbox, which a publish gets to unless it is lost."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.url = cloud.queue(f"{PREFIX}canary-inbox")

    def put(self, body: str) -> None:
        self.cloud.sqs.send_message(QueueUrl=self.url, MessageBody=body)

    def deliver(self, payload: bytes, after_s: float = 1) -> None:
        """What IoT Core and the router do with a publish."""
        self.cloud.clock.advance(after_s)
        self.put(stamp_sender(parse_event(payload), OWN).json)

    def lose(self, payload: bytes) -> None:
        self.cloud.clock.advance(1)

    def send(self, publish: Callable[[bytes], None], remaining_ms: int = 0) -> CanaryReport:
        """What becomes of an alarm."""
        canary = Canary(
            publish=publish,
            sqs=self.cloud.sqs,
            inbox_url=self.url,
            late_ms=10_000,
            clock=self.cloud.clock,
            random_bytes=urandom,
        )
        report = canary.send(lambda: remaining_ms)
        assert self.cloud.sqs.bodies(self.url) == []
        return report

    def earlier(self, sent_at_ms: Any = NOW_MS, sender: Sender = OWN) -> str:
        """An alarm that was sent before."""
        attributes = {"id": "before", "source": "/eventplane/cloud/canary", "type": CANARY_ALARM}
        return stamp_sender(write_event(attributes, {"sent_at_ms": sent_at_ms}), sender).json


@pytest.fixture
def inbox(cloud: Cloud) -> Inbox:
    return Inbox(cloud)


class TestAlarm:
    @pytest.mark.lost_answers
    def test_an_alarm_that_arrives_is_measured_and_removed(self, inbox: Inbox) -> None:
        report = inbox.send(inbox.deliver, 60_000)
        assert (report.problem, report.delay_ms, report.late) == (None, 1_000, 0)
        assert written() == {"CanaryDelay": [1_000], "CanaryMissed": [0]}

    @pytest.mark.parametrize(("after_s", "missed"), [(10, 0), (10.001, 1)])
    def test_an_alarm_that_is_late_is_missed(self, inbox: Inbox, after_s: float, missed: int) -> None:
        inbox.send(partial(inbox.deliver, after_s=after_s), 60_000)
        assert written()["CanaryMissed"] == [missed]

    @pytest.mark.lost_answers
    def test_a_late_alarm_is_measured_once_by_the_next_invocation(self, inbox: Inbox) -> None:
        for _ in range(2):
            inbox.put(inbox.earlier())
        assert inbox.send(inbox.deliver, 60_000).late == 1
        assert (len(written()["CanaryDelay"]), written()["CanaryMissed"]) == (2, [0])

    def test_a_refused_publish_is_reported(self, inbox: Inbox) -> None:
        inbox.put(inbox.earlier())
        report = inbox.send(Mock(side_effect=ConnectionEndedError(CANARY_CLIENT, "not authorized")), 60_000)
        assert "not authorized" in (report.problem or "")
        assert (report.delay_ms, report.late, len(written()["CanaryDelay"])) == (None, 1, 1)
        assert written()["CanaryMissed"] == [1]

    @pytest.mark.parametrize("kind", ["another sender", "without time", "another type", "no event"])
    def test_foreign_messages_are_removed_and_not_measured(self, inbox: Inbox, kind: str) -> None:
        bodies = {
            "another sender": inbox.earlier(sender=Sender("home-1")),
            "without time": inbox.earlier(sent_at_ms=None),
            "another type": stamp_sender(event("1"), OWN).json,
        }
        inbox.put(bodies.get(kind, kind))
        report = inbox.send(inbox.lose)
        assert (report.problem, report.delay_ms, report.late) == (None, None, 0)
        assert written() == {"CanaryMissed": [1]}

    @pytest.mark.parametrize(
        ("client_id", "outcomes"),
        [
            (CANARY_CLIENT, [("canary.inbox", "delivered")]),
            # A device's can neither hide an outage nor flood the inbox.
            ("home-1", [(None, "unrouted")]),
            # Why the canary connects over MQTT: so IoT Core calls the client of a publish over HTTPS.
            ("n/a", [(None, "dead_lettered"), ("operations.inbox", "delivered")]),
        ],
    )
    def test_the_router_delivers_it_to_the_canary_s_inbox_only(
        self, cloud: Cloud, client_id: str, outcomes: list[tuple[str | None, str]]
    ) -> None:
        sent: list[bytes] = []
        Inbox(cloud).send(sent.append)
        frame = IngestFrame(sent[0], f"devices/{client_id}/outbox", client_id, "a" * 64, NOW_MS)
        assert cloud.route(message("m1", frame_text(frame))) == frozenset()
        assert sorted((row[1:] for row in cloud.outcomes()), key=str, reverse=True) == sorted(
            outcomes, key=str, reverse=True
        )
        assert cloud.copies() == {address: 1 for address, _ in outcomes if address}


class TestQueues:
    @pytest.fixture
    def queues(self, cloud: Cloud) -> Backlogs:
        return Backlogs(sqs=cloud.sqs, prefix=PREFIX, clock=cloud.clock, pool=system.threads.pool(8))

    def fill(self, cloud: Cloud, name: str, number: int = 1) -> str:
        url = cloud.queue(name)
        for _ in range(number):
            cloud.sqs.send_message(QueueUrl=url, MessageBody="{}")
        return url

    def test_dead_letters_of_all_queues_are_one_figure(self, cloud: Cloud, queues: Backlogs) -> None:
        queues.look()
        # The figures of an empty plane show that the check ran.
        assert written() == {"DeadLetters": [0], "Backlog": [0]}
        metrics.clear_metrics()
        for name, number in (("dev-tap-dlq", 2), ("dev-watch-dlq", 1), ("prod-tap-dlq", 4)):
            self.fill(cloud, f"eventplane-{name}", number)
        look = queues.look()
        assert look.dead_letters == {f"{PREFIX}tap-dlq": 2, f"{PREFIX}watch-dlq": 1}
        assert (written()["DeadLetters"], look.backlog_s) == ([3], {})

    def test_a_queue_that_is_never_empty_has_a_growing_backlog(self, cloud: Cloud, queues: Backlogs) -> None:
        name = f"{PREFIX}tap"
        url = self.fill(cloud, name)
        self.fill(cloud, f"{PREFIX}carers-replies")
        for passed_s, backlog in ((0, {name: 0}), (900, {name: 900}), (300, {}), (300, {name: 0})):
            cloud.clock.advance(passed_s)
            if not backlog:
                cloud.sqs.take(url)
            assert queues.look().backlog_s == backlog
            if not backlog:
                cloud.sqs.send_message(QueueUrl=url, MessageBody="{}")

    def test_a_failed_check_writes_no_figures(self, cloud: Cloud) -> None:
        self.fill(cloud, f"{PREFIX}tap")
        unwilling = FailingClient(cloud.sqs, "get_queue_attributes")
        with pytest.raises(ClientError):
            Backlogs(sqs=unwilling, prefix=PREFIX, clock=cloud.clock, pool=system.threads.pool(8)).look()
        assert written() == {}

    def test_a_deleted_queue(self, cloud: Cloud, queues: Backlogs, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fill(cloud, f"{PREFIX}tap-dlq", 2)
        gone = self.fill(cloud, f"{PREFIX}watch-dlq")
        listing = cloud.sqs.list_queues(QueueNamePrefix=PREFIX)
        cloud.sqs.delete_queue(QueueUrl=gone)
        # The listing is from before the deletion.
        monkeypatch.setattr(cloud.sqs, "list_queues", lambda **_: listing)
        assert queues.look().dead_letters == {f"{PREFIX}tap-dlq": 2}


@pytest.mark.lost_answers
class TestFunction:
    SECRET = "eventplane-dev-canary-identity"

    @pytest.fixture(autouse=True)
    def deployed(self, cloud: Cloud, inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = CanarySettings(
            ingest_rule="rule",
            device_policy="device",
            identity_secret=self.SECRET,
            inbox_queue=inbox.url,
            queue_prefix=PREFIX,
            late_ms=1,
        )
        deploy(monkeypatch, tmp_path, None, {})
        for name, value in settings.variables().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(handler, "services", handler.wire)
        monkeypatch.setattr(handler, "gettempdir", lambda: str(tmp_path))
        cloud.aws.secrets.create_secret(Name=self.SECRET, SecretString="random")
        cloud.aws.iot.create_policy(policyName="device", policyDocument="{}")

    def test_it_checks_the_queues(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = handler.handle({"do": "queues"}, LambdaContext())
        assert found == {"dead_letters": {}, "backlog_s": {}}
        assert figures(capsys.readouterr().out)["DeadLetters"] == 0

    def test_it_keeps_its_certificate(self, cloud: Cloud, tmp_path: Path) -> None:
        """That it is let in is shown over the emulated cloud (tests/integration/test_operations.py)."""
        iot, secrets = cloud.aws.iot, cloud.aws.secrets
        seen = []
        for replaces in (False, False, True):
            if replaces:
                secrets.put_secret_value(SecretId=self.SECRET, SecretString="another, please")
            report: dict[str, Any] = handler.handle({"do": "alarm"}, LambdaContext(remaining_ms=0))
            assert f"no connection as '{CANARY_CLIENT}'" in report["problem"]
            (principal,) = iot.list_thing_principals(thingName=CANARY_CLIENT)["principals"]
            (policy,) = iot.list_attached_policies(target=principal)["policies"]
            assert policy["policyName"] == "device"
            seen.append(principal)
            assert (tmp_path / "canary.pem").stat().st_mode & 0o777 == 0o600
            stored = secrets.get_secret_value(SecretId=self.SECRET)["SecretString"]
            assert (tmp_path / "canary.pem").read_text() == stored
        assert seen[0] == seen[1] != seen[2]
