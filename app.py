"""What `cdk` runs: the Event Plane in the environment that `--context env=NAME` names."""

from __future__ import annotations

import aws_cdk as cdk

from contract import load_contract
from stacks.application import build
from stacks.config import environment

app = cdk.App()
build(app, environment(app.node.try_get_context("env") or "dev"), load_contract())
app.synth()
