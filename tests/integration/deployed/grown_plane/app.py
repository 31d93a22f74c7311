"""The plane's own stacks, in an environment of their own, with a contract that has grown by a night watch."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4]))  # cdk starts it in its own directory

import aws_cdk as cdk

from stacks.application import build
from tests.integration.deployed.grown import ENVIRONMENT, grown_contract

app = cdk.App()
build(app, ENVIRONMENT, grown_contract())
app.synth()
