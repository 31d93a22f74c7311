"""The plane with an alarm centre that is a webhook, at the URL in the variable WEBHOOK_URL."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import aws_cdk as cdk

from contract import load_contract
from eventplane.contract import compile_contract
from stacks.application import build
from stacks.config import environment

document = json.loads(load_contract().canonical)
document["participants"]["alarm-centre"]["inbox"] = {"webhook": {}, "priority": "urgent"}
app = cdk.App()
build(
    app,
    # Another name than the demo's: both may be deployed to one emulator.
    replace(environment("local"), name="hooks", webhook_urls={"alarm-centre": os.environ["WEBHOOK_URL"]}),
    compile_contract(document, "test"),
)
app.synth()
