"""Find what was changed by hand in deployed stacks, by CloudFormation's drift detection."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.errors import EventPlaneError
from stacks.deployment import is_unknown_stack

POLL_S: Final = 3.0
"""Seconds between two looks at a detection."""

POLLS: Final = 200
"""Looks at one detection: ten minutes. AWS names no bound; a stack of 250 resources takes about two."""

_DRIFTED: Final = ("MODIFIED", "DELETED")


class DriftDetectionError(EventPlaneError):
    """The detection of drift in `stack` did not end. `reason` is CloudFormation's."""

    def __init__(self, stack: str, reason: str) -> None:
        super().__init__(
            f"{stack}: drift could not be detected ({reason}); the credentials need "
            "cloudformation:DetectStackDrift, DescribeStackDriftDetectionStatus and "
            "DescribeStackResourceDrifts, and to read every resource; or deploy with ACCEPT_DRIFT=1"
        )
        self.stack = stack
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Drift:
    """A resource of `stack` that is not as it was deployed.

    `differences` are `property: expected -> actual`; a deleted resource has none.
    """

    stack: str
    id: str
    type: str
    status: str
    differences: tuple[str, ...]

    def __str__(self) -> str:
        what = "; ".join(self.differences) or self.status.lower()
        return f"{self.stack}/{self.id} ({self.type}): {what}"


def find_drift(
    cloudformation: Any,
    stacks: Collection[str],
    wait: Callable[[float], None],
    warn: Callable[[str], None],
) -> Iterator[Drift]:
    """Yield what has drifted in `stacks`; those that were never deployed have nothing.

    Args:
        cloudformation: a boto3 client.
        wait: sleeps for seconds between two looks.
        warn: is given what could not be compared, as a line for people.

    Raises:
        DriftDetectionError: a detection could not be started, or did not end.
    """
    started = {stack: _start(cloudformation, stack, wait) for stack in stacks}
    for stack, detection in started.items():
        if detection is None:
            continue
        result = _await(cloudformation, stack, detection, wait)
        if result["DetectionStatus"] == "DETECTION_FAILED":
            # What could be read is known all the same.
            warn(f"{stack}: drift of some resources is unknown: {result.get('DetectionStatusReason')}")
        yield from _drifts(cloudformation, stack)


def _start(cloudformation: Any, stack: str, wait: Callable[[float], None]) -> str | None:
    """Return the id of a detection; None for a stack that was never deployed."""
    for _ in range(POLLS):
        try:
            return str(cloudformation.detect_stack_drift(StackName=stack)["StackDriftDetectionId"])
        except ClientError as error:
            if is_unknown_stack(error):
                return None
            # Ours as well, if the answer to its start was lost: only its id leads to what it finds.
            if "already in progress" not in str(error):
                raise DriftDetectionError(stack, str(error)) from error
        wait(POLL_S)
    raise DriftDetectionError(stack, f"another detection is still running after {POLLS * POLL_S:.0f} s")


def _await(
    cloudformation: Any, stack: str, detection: str, wait: Callable[[float], None]
) -> Mapping[str, Any]:
    for _ in range(POLLS):
        result: Mapping[str, Any] = cloudformation.describe_stack_drift_detection_status(
            StackDriftDetectionId=detection
        )
        if result["DetectionStatus"] != "DETECTION_IN_PROGRESS":
            return result
        wait(POLL_S)
    raise DriftDetectionError(stack, f"still running after {POLLS * POLL_S:.0f} s")


def _drifts(cloudformation: Any, stack: str) -> Iterator[Drift]:
    request: dict[str, Any] = {"StackName": stack, "StackResourceDriftStatusFilters": list(_DRIFTED)}
    while True:
        page = cloudformation.describe_stack_resource_drifts(**request)
        for each in page["StackResourceDrifts"]:
            yield Drift(
                stack,
                each["LogicalResourceId"],
                each["ResourceType"],
                each["StackResourceDriftStatus"],
                tuple(
                    f"{one['PropertyPath']}: {one['ExpectedValue']} -> {one['ActualValue']}"
                    for one in each.get("PropertyDifferences", [])
                ),
            )
        if not (token := page.get("NextToken")):
            return
        request["NextToken"] = token
