"""The CDK app: the Event Plane in the environment that `--context env=NAME` names."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import aws_cdk as cdk

from contract import CONTRACT_FILE, load_contract
from eventplane.errors import EventPlaneError
from stacks.application import build
from stacks.config import environment
from stacks.constructs.function_assets import install_dependencies
from stacks.rules import synthesize

app = cdk.App()
try:
    chosen = environment(app.node.try_get_context("env") or "dev")
    if app.node.try_get_context("rollout") == "at-once":
        chosen = replace(chosen, rollout_minutes=None)
    # Of the plane on one machine (`make up`), whose contract and endpoints are its user's.
    endpoints = json.loads(app.node.try_get_context("webhooks") or "{}")
    chosen = replace(chosen, webhook_urls={**chosen.webhook_urls, **endpoints})
    contract = load_contract(Path(app.node.try_get_context("contract") or CONTRACT_FILE))
    # First what takes no time to find.
    chosen.check_urls(contract)
    install_dependencies(app, chosen)
    build(app, chosen, contract)
    synthesize(app, chosen.region or os.environ.get("CDK_DEFAULT_REGION"))
except EventPlaneError as error:
    # Its message says what to do; a traceback above it would only hide that.
    sys.exit(str(error))
