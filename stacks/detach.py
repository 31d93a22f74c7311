"""`python -m stacks.detach ENV`: detaches the IoT policies of ENV from all certificates, before a deletion.

AWS IoT refuses to delete a policy that is attached, so a single registered device would stop the deletion of
the stacks half-way.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.errors import EventPlaneError
from eventplane.resource_names import resource_name
from stacks.config import environment
from stacks.deployment import confirm, session_in


def attachments(iot: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield the attached policies of the environment `name`, each with the ARN of a certificate."""
    prefix = resource_name(name, "")
    for page in iot.get_paginator("list_policies").paginate():
        for policy in (each["policyName"] for each in page["policies"]):
            if policy.startswith(prefix):
                for targets in iot.get_paginator("list_targets_for_policy").paginate(policyName=policy):
                    yield from ((policy, target) for target in targets["targets"])


def detach(iot: Any, name: str, ask: Callable[[str], str] = input, yes: str | None = None) -> int:
    """Detach the policies of the environment `name`; return from how many certificates.

    It is asked first, unless `yes` is its name. Raises `NotConfirmedError`, and botocore's errors.
    """
    found = list(attachments(iot, name))
    devices = len({target for _, target in found})
    if devices:
        confirm(f"{devices} certificates lose the policies of {name!r}.", name, yes, ask)
    for policy, target in found:
        with suppress(iot.exceptions.ResourceNotFoundException):  # by a request whose answer was lost
            iot.detach_policy(policyName=policy, target=target)
    return devices


def main(argv: list[str]) -> None:
    """Raises `EventPlaneError` and botocore's errors."""
    parser = argparse.ArgumentParser(prog="python -m stacks.detach", description=__doc__)
    parser.add_argument("environment")
    parser.add_argument("--yes", metavar="ENV", help="its name again; then nothing is asked")
    arguments = parser.parse_args(argv)
    name = arguments.environment
    iot = session_in(environment(name).region).client("iot")
    detach(iot, name, yes=arguments.yes)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (EventPlaneError, BotoCoreError, ClientError) as error:
        sys.exit(str(error))
