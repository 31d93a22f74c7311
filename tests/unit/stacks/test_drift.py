"""What was changed by hand in deployed stacks, with CloudFormation's answers as botocore checks them."""

from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from stacks.drift import POLLS, DriftDetectionError, find_drift
from stacks.preflight import DriftError, check_drift

STACK = "eventplane-prod-routing"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Formation:
    """A stubbed client, what was waited and what was warned of."""

    def __init__(self) -> None:
        self.client = boto3.client(
            "cloudformation", region_name="eu-central-1", aws_access_key_id="x", aws_secret_access_key="x"
        )
        self.stub = Stubber(self.client)
        self.stub.activate()
        self.waited: list[float] = []
        self.warned: list[str] = []

    def starts(self) -> None:
        self.stub.add_response("detect_stack_drift", {"StackDriftDetectionId": "1"}, {"StackName": STACK})

    def status(self, detection: str, drift: str = "IN_SYNC", **more: Any) -> None:
        answer = {
            "StackId": "s",
            "StackDriftDetectionId": "1",
            "DetectionStatus": f"DETECTION_{detection}",
            "Timestamp": NOW,
            "StackDriftStatus": drift,
            **more,
        }
        self.stub.add_response(
            "describe_stack_drift_detection_status", answer, {"StackDriftDetectionId": "1"}
        )

    def drifts(self, *drifts: dict[str, Any], token: str | None = None, after: str | None = None) -> None:
        asked = {"StackName": STACK, "StackResourceDriftStatusFilters": ["MODIFIED", "DELETED"]}
        self.stub.add_response(
            "describe_stack_resource_drifts",
            {
                "StackResourceDrifts": [{"StackId": "s", "Timestamp": NOW, **each} for each in drifts],
                **({"NextToken": token} if token else {}),
            },
            {**asked, **({"NextToken": after} if after else {})},
        )

    def found(self, *stacks: str) -> list[str]:
        found = find_drift(self.client, stacks or (STACK,), self.waited.append, self.warned.append)
        texts = [str(each) for each in found]
        self.stub.assert_no_pending_responses()
        return texts


MAPPING = {
    "LogicalResourceId": "UrgentMapping",
    "ResourceType": "AWS::Lambda::EventSourceMapping",
    "StackResourceDriftStatus": "MODIFIED",
    "PropertyDifferences": [
        {
            "PropertyPath": "/Enabled",
            "ExpectedValue": "true",
            "ActualValue": "false",
            "DifferenceType": "NOT_EQUAL",
        }
    ],
}
QUEUE = {
    "LogicalResourceId": "TapQueue",
    "ResourceType": "AWS::SQS::Queue",
    "StackResourceDriftStatus": "DELETED",
}


@pytest.mark.lost_answers
def test_what_was_changed_or_deleted_by_hand_is_named_page_by_page() -> None:
    formation = Formation()
    formation.starts()
    formation.status("IN_PROGRESS")
    formation.status("COMPLETE", "DRIFTED")
    formation.drifts(MAPPING, token="2")
    formation.drifts(QUEUE, after="2")
    assert formation.found() == [
        f"{STACK}/UrgentMapping (AWS::Lambda::EventSourceMapping): /Enabled: true -> false",
        f"{STACK}/TapQueue (AWS::SQS::Queue): deleted",
    ]
    assert len(formation.waited) == 1


def test_a_detection_waits_for_the_end_of_another_one() -> None:
    formation = Formation()
    message = f"Drift detection is already in progress for stack {STACK}"
    formation.stub.add_client_error("detect_stack_drift", "ValidationError", message)
    formation.starts()
    formation.status("COMPLETE")
    formation.drifts()
    assert formation.found() == []
    assert len(formation.waited) == 1


def test_a_stack_that_was_never_deployed_has_not_drifted() -> None:
    formation = Formation()
    message = f"Stack [{STACK}] does not exist"
    formation.stub.add_client_error("detect_stack_drift", "ValidationError", message)
    assert formation.found() == []


def test_what_cannot_be_read_is_a_warning_beside_what_can() -> None:
    formation = Formation()
    formation.starts()
    formation.status("FAILED", "DRIFTED", DetectionStatusReason="AccessDenied on ThingPolicy")
    formation.drifts(QUEUE)
    assert len(formation.found()) == 1
    assert formation.warned == [f"{STACK}: drift of some resources is unknown: AccessDenied on ThingPolicy"]


def test_a_detection_that_cannot_start_or_does_not_end_refuses() -> None:
    formation = Formation()
    formation.stub.add_client_error("detect_stack_drift", "AccessDenied")
    with pytest.raises(DriftDetectionError, match="cloudformation:DetectStackDrift"):
        formation.found()
    formation = Formation()
    formation.starts()
    for _ in range(POLLS):
        formation.status("IN_PROGRESS")
    with pytest.raises(DriftDetectionError, match="still running after 600 s"):
        formation.found()


def test_drift_refuses_and_says_what_to_do() -> None:
    check_drift([])
    formation = Formation()
    formation.starts()
    formation.status("COMPLETE", "DRIFTED")
    formation.drifts(MAPPING)
    drifts = find_drift(formation.client, [STACK], formation.waited.append, formation.warned.append)
    with pytest.raises(DriftError, match=r"/Enabled: true -> false\n  undo each change.*ACCEPT_DRIFT=1"):
        check_drift(drifts)
