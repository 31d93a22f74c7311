"""The alarms that the plane raises about itself: its canary's, and the notifications of CloudWatch's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from eventplane.errors import EventPlaneError
from eventplane.names import CANARY
from operations import system
from operations.cloud import Cloud
from operations.patience import Patience
from parts.probe.control import Removals
from parts.probe.plane import DeployedPlane
from parts.probe.result import Seen

_LONG_POLL_S = 3
"""Less than a client waits for an answer (`operations.cloud`)."""


class NothingToExerciseError(EventPlaneError):
    """The environment lacks `what` the step exercises."""

    what: str
    message = "there is {what}; deploy all stacks of this environment again"


class NotInContractError(EventPlaneError):
    """The contract has nothing that the step could test. `lacks` says what it has not."""

    lacks: str
    message = "not tested: the contract has {lacks}"


class WrongOutcomeError(EventPlaneError):
    """The plane did with `what` something else than it should."""

    what: str
    problem: str
    remedy: str
    message = "{what}: {problem}; {remedy}"


def invoke_canary(plane: DeployedPlane, patience: Patience) -> Seen:
    """Let the canary send an alarm, and wait for it.

    Where it runs by its schedule at the same time, either run may take the other's alarm from the inbox: then
    another one is sent. Raises `NotInContractError`, `WrongOutcomeError`, `NotSeenError`, botocore's errors.
    """
    if CANARY not in plane.contract.participants:
        raise NotInContractError("no canary")
    functions, name = plane.cloud.client("lambda"), plane.name(CANARY)

    def arrived() -> dict[str, Any] | None:
        answer = functions.invoke(FunctionName=name, Payload=b'{"do": "alarm"}')
        report: dict[str, Any] = json.loads(answer["Payload"].read())
        problem = str(report) if "FunctionError" in answer else report["problem"]
        if problem:
            raise WrongOutcomeError("the canary", problem, f"see the log of the function {name}")
        return report if report["delay_ms"] is not None else None

    report = patience.until(
        arrived,
        f"the canary's alarm in {CANARY}.inbox",
        "see the log of the urgent router and the age of the queue ingest-urgent",
    )
    words = f"its alarm went through IoT Core and the urgent lane to {CANARY}.inbox"
    return Seen(words, report["delay_ms"] / 1_000, report["id"])


@dataclass(frozen=True)
class Notification:
    """Sets one alarm of each topic to ALARM, as the run's own words say, and back.

    A temporary queue subscribes to each topic that alarms notify.
    """

    cloud: Cloud
    prefix: str
    run: str
    removals: Removals

    def exercise(self, patience: Patience) -> Seen:
        """Raises `NothingToExerciseError`, `NotSeenError`, botocore's errors."""
        cloudwatch = self.cloud.client("cloudwatch")
        pages = cloudwatch.get_paginator("describe_alarms").paginate(AlarmNamePrefix=self.prefix)
        by_topic: dict[str, Mapping[str, Any]] = {}
        for alarm in (each for page in pages for each in page["MetricAlarms"]):
            # One that is in ALARM already notifies nobody again.
            if alarm["StateValue"] != "ALARM" and alarm["ActionsEnabled"]:
                for topic in alarm["AlarmActions"]:
                    by_topic.setdefault(topic, alarm)
        if not by_topic:
            raise NothingToExerciseError(f"no alarm called {self.prefix}... that is not in ALARM already")
        queue = self._subscribe(list(by_topic))
        slowest, references = 0.0, []
        for topic, alarm in by_topic.items():
            name = alarm["AlarmName"]
            before = partial(self._set, cloudwatch, alarm, alarm["StateValue"])
            self.removals.add(f"state ALARM of {name}", before)
            began = system.monotonic()
            self._set(cloudwatch, alarm, "ALARM")
            message = patience.until(
                partial(self._notified, queue, name, topic),
                f"the notification of alarm {name} by {topic}",
                "see the topic's policy, and its metric NumberOfNotificationsFailed",
            )
            slowest = max(slowest, system.monotonic() - began)
            references.append(message)
        names = ", ".join(
            f"{alarm['AlarmName']} by {topic.rsplit(':', 1)[1]}" for topic, alarm in by_topic.items()
        )
        return Seen(f"notified: {names}", slowest, references[-1])

    def _subscribe(self, topics: list[str]) -> str:
        """Let a queue of the run receive what `topics` get, and return its URL."""
        sns, sqs = self.cloud.client("sns"), self.cloud.sqs
        # arn:partition:sns:region:account:name
        arn = ":".join([*topics[0].replace(":sns:", ":sqs:", 1).split(":")[:5], self.run])
        allowed = {
            "Effect": "Allow",
            "Principal": {"Service": "sns.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": arn,
            "Condition": {"ArnEquals": {"aws:SourceArn": topics}},
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        self.removals.add(f"queue {self.run}", lambda: self._delete_queue(sqs))
        url = str(sqs.create_queue(QueueName=self.run, Attributes={"Policy": policy})["QueueUrl"])
        for topic in topics:
            self.removals.add(f"subscription to {topic}", partial(_unsubscribe, sns, topic, arn))
            sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
        return url

    def _delete_queue(self, sqs: Any) -> None:
        try:
            sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=self.run)["QueueUrl"])
        except sqs.exceptions.QueueDoesNotExist:
            return

    def _set(self, cloudwatch: Any, alarm: Mapping[str, Any], state: str) -> None:
        reason = f"Smoke test {self.run}: nothing is wrong, and nothing has to be done."
        cloudwatch.set_alarm_state(AlarmName=alarm["AlarmName"], StateValue=state, StateReason=reason)

    def _notified(self, queue: str, alarm: str, topic: str) -> str | None:
        """Return the id of the message by which `topic` says that `alarm` is in ALARM because of this run."""
        sqs = self.cloud.sqs
        answer = sqs.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=_LONG_POLL_S, VisibilityTimeout=1
        )
        for each in answer.get("Messages", []):
            body = json.loads(each["Body"])
            told = json.loads(body["Message"]) if body.get("TopicArn") == topic else {}
            if told.get("AlarmName") == alarm and self.run in told.get("NewStateReason", ""):
                return str(body["MessageId"])
        return None


def _unsubscribe(sns: Any, topic: str, endpoint: str) -> None:
    pages = sns.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=topic)
    for each in (each for page in pages for each in page["Subscriptions"]):
        if each["Endpoint"] == endpoint and each["SubscriptionArn"].startswith("arn:"):
            with suppress(sns.exceptions.NotFoundException):  # by a request whose answer was lost
                sns.unsubscribe(SubscriptionArn=each["SubscriptionArn"])
