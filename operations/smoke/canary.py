"""The canary, invoked once: its alarm goes by IoT Core, the urgent lane and a router to its own inbox."""

from __future__ import annotations

import json
from typing import Any

from eventplane.names import CANARY
from operations.smoke.errors import WrongOutcomeError
from operations.smoke.patience import Patience
from operations.smoke.plane import DeployedPlane
from operations.smoke.result import Shown


def invoke_canary(plane: DeployedPlane, patience: Patience) -> Shown:
    """Let the canary send an alarm, and wait for it.

    Where it runs by its schedule at the same time, either run may take the other's alarm from the inbox: then
    another one is sent. Raises `WrongOutcomeError`, `NotSeenError`, botocore's errors.
    """
    if CANARY not in plane.contract.participants:
        return Shown("the contract has no canary")
    functions, name = plane.cloud.client("lambda"), plane.name(CANARY)
    # Behind an alias is what its schedule calls, which need not be the newest version yet.
    aliases = [each["Name"] for each in functions.list_aliases(FunctionName=name)["Aliases"]]
    qualifier = {"Qualifier": aliases[0]} if aliases else {}

    def arrived() -> dict[str, Any] | None:
        answer = functions.invoke(FunctionName=name, Payload=b'{"do": "alarm"}', **qualifier)
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
    return Shown(words, report["delay_ms"] / 1_000, report["id"])
