"""`python -m stacks.preflight ASSEMBLY ENV [--accept-drift] [--ask]`: refuses what would fail or harm.

The synthesised ASSEMBLY (`cdk.out`) is compared with the region and the account of the current credentials:
another plane there, resources that the region lacks, queues that would go, quotas, who confirmed to be paged,
and what was changed by hand.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.errors import EventPlaneError
from eventplane.resource_names import PROJECT, OtherPlaneError
from stacks.config import environment
from stacks.deployment import Deployment, PlannedStack, confirm, planned_stacks, session_in
from stacks.drift import Drift, find_drift
from stacks.leftovers import failed_first, remove_leftovers
from stacks.pagers import pager_findings
from stacks.plane_stack import PLANE_TAG
from stacks.quotas import Account, Finding, organisation_findings, planned_concurrency
from stacks.removal import check_removals
from stacks.rules import check, templates


class QuotaError(EventPlaneError):
    """The account's quotas do not suffice. `problems` are one for each of them."""

    def __init__(self, problems: Collection[str]) -> None:
        super().__init__("\n  ".join(["nothing was deployed, because quotas do not suffice:", *problems]))
        self.problems = tuple(problems)


class DriftError(EventPlaneError):
    """Deployed resources were changed by hand. `drifts` are one for each of them."""

    def __init__(self, drifts: Collection[Drift]) -> None:
        lines = [
            "nothing was deployed, because resources are not as they were deployed:",
            *map(str, drifts),
            "undo each change, or write it into the code; or deploy with ACCEPT_DRIFT=1: a deployment sets "
            "back only what it changes itself",
        ]
        super().__init__("\n  ".join(lines))
        self.drifts = tuple(drifts)


def check_quotas(findings: Iterable[Finding]) -> list[str]:
    """Return the warnings of `findings`. Raises `QuotaError` where one of them refuses."""
    found = list(findings)
    if refused := [each.text for each in found if each.refuses]:
        raise QuotaError(refused)
    return [each.text for each in found]


def quota_findings(account: Account, planned: Collection[PlannedStack], devices: int) -> list[Finding]:
    """Compare what `planned` and so many devices need with what `account` has."""
    return [
        *account.concurrency_findings(planned_concurrency(planned)),
        *account.device_findings(devices),
    ]


def check_owner(cloudformation: Any, environment: str) -> None:
    """Raises `OtherPlaneError` where the plane of another environment is deployed, and what boto3 raises."""
    for page in cloudformation.get_paginator("describe_stacks").paginate():
        for stack in page["Stacks"]:
            tags = {each["Key"]: each["Value"] for each in stack.get("Tags", ())}
            owner = tags.get("environment", environment)
            if PLANE_TAG in tags and tags.get("project") == PROJECT and owner != environment:
                raise OtherPlaneError(owner, environment)


def drift(cloudformation: Any, stacks: Collection[str]) -> Iterator[Drift]:
    """Find the drift of `stacks`, without those that a first deployment has left. Raises as `find_drift`."""
    failed = failed_first(cloudformation, stacks)
    deployed = [each for each in stacks if each not in failed]
    return find_drift(cloudformation, deployed, time.sleep, _warn)


def check_drift(drifts: Iterable[Drift]) -> None:
    """Raises `DriftError` if there is drift."""
    if found := list(drifts):
        raise DriftError(found)


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)  # noqa: T201 - a command's output


def main(argv: list[str]) -> None:
    """Raises `EventPlaneError` with what is wrong, and what boto3 raises without an answer about queues."""
    parser = argparse.ArgumentParser(prog="python -m stacks.preflight", description=__doc__)
    parser.add_argument("assembly", type=Path)
    parser.add_argument("environment")
    parser.add_argument("--accept-drift", action="store_true")
    parser.add_argument("--ask", action="store_true", help="before the first stack, and remove leftovers")
    parser.add_argument("--yes", metavar="ENV", help="the answer: the environment's name")
    arguments = parser.parse_args(argv)
    chosen = environment(arguments.environment)
    session = session_in(chosen.region)
    # Synthesis may not have known the region.
    for template in templates(arguments.assembly):
        check(template, session.region_name)
    planned = planned_stacks(arguments.assembly)
    check_owner(session.client("cloudformation"), chosen.name)
    # Without an answer nothing is deployed: what cannot be seen may hold events.
    check_removals(Deployment.of(planned), planned)
    quotas = Account(session.region_name, session.client("lambda"), session.client("service-quotas"))
    findings = quota_findings(quotas, planned, chosen.devices)
    findings += [
        *organisation_findings(planned, session.client),
        *pager_findings(planned, session.client("sns")),
    ]
    for warning in check_quotas(findings):
        _warn(warning)
    names = [each.name for each in planned]
    if not arguments.accept_drift:
        check_drift(drift(session.client("cloudformation"), names))
    if arguments.ask:
        account = chosen.account or "the account of the credentials"
        question = f"{len(planned)} stacks go to {account}, {session.region_name}, with their permissions."
        confirm(question, chosen.name, arguments.yes)
        remove_leftovers(session.client, names, _warn)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (EventPlaneError, BotoCoreError, ClientError) as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}; write the assembly by `make synth`")
