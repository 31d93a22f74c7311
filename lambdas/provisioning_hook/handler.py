"""The hook's entry: wires once for the life of the process, then delegates.

Source of what comes in and goes out: AWS IoT developer guide, "Pre-provisioning hooks", payload 2020-04-01.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from eventplane.fleet_registry import Registry
from lambdas.common.aws import client
from lambdas.common.clock import system_clock
from lambdas.common.log import logger
from lambdas.common.queue import Context
from lambdas.provisioning_hook.service import HookService
from lambdas.provisioning_hook.settings import read_settings


@cache
def service() -> HookService:
    """The service as the environment describes it. Raises `SettingsError`."""
    settings = read_settings(os.environ)
    return HookService(store=Registry(client("dynamodb"), settings.table), clock=system_clock)


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: Context) -> dict[str, bool]:  # noqa: ARG001 - Lambda passes it
    """Say whether one registration may go on."""
    return {"allowProvisioning": service().decide(event)}
