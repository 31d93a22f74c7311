"""`make smoke-aws`: a day with a real account, which it leaves as it was (docs/how-to/first-account.md)."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.device_record import FLEET_TABLE
from eventplane.errors import EventPlaneError
from eventplane.resource_names import resource_name
from eventplane_aws.prices import dollars
from stacks.config import ENVIRONMENTS, environment
from stacks.deployment import confirm, planned_stacks, session_in
from stacks.environment import Environment
from stacks.preflight import PROTECTED, failed_first

ROOT: Final = Path(__file__).parents[1]

NAME_AGAIN_S: Final = 65.0
"""SQS gives the name of a deleted queue again after 60 s (Amazon SQS API, DeleteQueue)."""

RESTORABLE_S: Final = 420.0
"""DynamoDB restores what was there five minutes ago (its guide on point-in-time recovery), and some more."""

_THING: Final = "smoke-aws-restored"


class DayError(EventPlaneError):
    """The day would not begin, or a step did not show what it should. `problem` says what to do."""

    problem: str
    message = "{problem}"


def shell(words: Sequence[str]) -> int:
    """Run a command of the checkout, and return its exit status."""
    return subprocess.run(words, cwd=ROOT, check=False).returncode


@dataclass
class AccountDay:
    """A day with the account that `client` leads to, by services' names."""

    chosen: Environment
    client: Callable[[str], Any]
    run: Callable[[Sequence[str]], int] = shell
    sleep: Callable[[float], None] = time.sleep
    say: Callable[[str], None] = print
    obstacle: str = ""

    @property
    def steps(self) -> Mapping[str, Callable[[], None]]:
        """The steps in their order; each can be repeated."""
        return {
            "synth": lambda: self._make("synth"),
            "fail": self._fail,
            "deploy": self._deploy,
            "smoke": lambda: self._make("smoke"),
            "restore": self._restore,
        }

    def check(self, variables: Mapping[str, str], begin: str) -> None:
        """Raise `DayError` where the day must not take place, and botocore's errors."""
        name = self.chosen.name
        if "AWS_ENDPOINT_URL" in variables:
            raise DayError("AWS_ENDPOINT_URL leads to an emulated cloud; unset it")
        if self.chosen.keeps_data or self.chosen.is_emulated:
            raise DayError(f"{name} is no environment to throw away; use ENV=dev")
        account = self.client("sts").get_caller_identity()["Account"]
        for each in ENVIRONMENTS.values():
            stacks = self._stacks(each.name)
            if each.keeps_data and (stacks or each.account == account):
                raise DayError(f"account {account} is that of {each.name}; use one for tests (AWS_PROFILE)")
            if each.name == name and stacks and begin == "synth":
                raise DayError(f"{name} is deployed: make destroy ENV={name}, or go on with FROM=deploy")

    def take(self, begin: str, *, keeps: bool) -> None:
        """Take the steps from `begin` on, and destroy what they made, after a failure unless it `keeps` it.

        Raises `DayError`, botocore's errors, KeyboardInterrupt.
        """
        names, at = list(self.steps), begin
        try:
            for at in names[names.index(begin) :]:
                self.say(f"{at} ...")
                self.steps[at]()
            keeps = False
        except BaseException as error:
            self.say(f"{at}: FAILED: {str(error) or type(error).__name__}")
            raise
        finally:
            self._remove_obstacle()
            if keeps:
                self.say(f"go on, as it costs money: make smoke-aws FROM={at}, or make destroy")
            else:
                self._destroy()

    def _command(self, *words: str) -> None:
        if status := self.run(words):
            raise DayError(f"{' '.join(words)} ended with status {status}")

    def _make(self, target: str) -> None:
        self._command("make", target, f"ENV={self.chosen.name}", f"YES={self.chosen.name}")

    def _stacks(self, name: str) -> str:
        pages = self.client("cloudformation").get_paginator("describe_stacks").paginate()
        found = (each["StackName"] for page in pages for each in page["Stacks"])
        return ", ".join(each for each in found if each.startswith(resource_name(name, "")))

    def _fail(self) -> None:
        """Take the name of a queue whose stack has protected tables, so that the first deployment fails."""
        planned = planned_stacks(ROOT / "cdk.out")
        stack = next(
            each
            for each in planned
            if each.queues and any(one["Type"] == PROTECTED for one in each.resources.values())
        )
        self.obstacle = min(each for each in stack.queues if not each.endswith(".fifo"))
        self.client("sqs").create_queue(QueueName=self.obstacle)
        with suppress(DayError):
            self._make("deploy")
        if not failed_first(self.client("cloudformation"), [stack.name]):
            raise DayError(f"the first deployment of {stack.name} did not fail")
        self._remove_obstacle()
        self.sleep(NAME_AGAIN_S)

    def _deploy(self) -> None:
        self._make("deploy")
        names = [each.name for each in planned_stacks(ROOT / "cdk.out")]
        if failed := failed_first(self.client("cloudformation"), names):
            raise DayError(f"{', '.join(failed)}: not deployed anew")

    def _restore(self) -> None:
        """Lose an item of the registry, and bring it back from the table's point in time."""
        env = "--env", self.chosen.name
        self._command("eventplane", "fleet", "register", _THING, *env)
        self.sleep(NAME_AGAIN_S)
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        self.sleep(RESTORABLE_S)
        table, key = resource_name(self.chosen.name, FLEET_TABLE), {"thing": {"S": _THING}}
        self.client("dynamodb").delete_item(TableName=table, Key=key)
        self._command("eventplane", "restore", "fleet", "--at", at, *env)
        self._command("eventplane", "fleet", "show", _THING, *env)

    def _remove_obstacle(self) -> None:
        sqs = self.client("sqs")
        if self.obstacle:
            with suppress(sqs.exceptions.QueueDoesNotExist):  # by a request whose answer was lost
                sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=self.obstacle)["QueueUrl"])
            self.obstacle = ""

    def _destroy(self) -> None:
        self._make("destroy")
        if left := self._stacks(self.chosen.name):
            raise DayError(f"{left}: left; see their events, and repeat make destroy")


def cost_usd(chosen: Environment) -> float:
    """Return what a day may cost: an idle plane, and an audit that takes all of its time. Computed."""
    figures = json.loads((ROOT / "docs" / "figures.json").read_text("utf-8"))["bench/cost"]["figures"]
    (idle,) = (each["value"] for each in figures if each["name"] == "idle_dev")
    hours = chosen.audit.workers * chosen.audit.timeout_min / 60
    return float(idle) / 30 + dollars({"glue_dpu_h": hours})


def main(argv: Sequence[str], variables: Mapping[str, str]) -> None:
    """Raises `EventPlaneError`, botocore's errors."""
    parser = argparse.ArgumentParser(prog="make smoke-aws", description=__doc__)
    parser.add_argument("environment")
    parser.add_argument("--from", dest="begin", default="synth")
    parser.add_argument("--keep", action="store_true", help="keep what is deployed if a step fails")
    parser.add_argument("--yes", metavar="ENV", help="its name again; then nothing is asked")
    options = parser.parse_args(argv)
    chosen = environment(options.environment)
    day = AccountDay(chosen, session_in(chosen.region).client)
    if options.begin not in day.steps:
        parser.error(f"FROM={options.begin} is none of {', '.join(day.steps)}")
    day.check(variables, options.begin)
    question = f"This takes hours and some {cost_usd(chosen):.2f} USD (computed)."
    confirm(question, chosen.name, options.yes)
    day.take(options.begin, keeps=options.keep)


if __name__ == "__main__":
    try:
        main(sys.argv[1:], os.environ)
    except (EventPlaneError, BotoCoreError, ClientError) as error:
        sys.exit(str(error))
