"""The packs of rules that security reviewers run find what stacks/security_review.toml gives a reason for."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import aws_cdk as cdk
import cdk_nag
import pytest

from stacks import application
from stacks.config import environment
from tests.infrastructure.conftest import KEY
from tests.infrastructure.templates import NO_BUNDLING
from tests.plane import shipped_contract

ROOT = Path(__file__).parents[2]
REVIEW = tomllib.loads((ROOT / "stacks/security_review.toml").read_text())
PACKS = (cdk_nag.NIST80053R5Checks, cdk_nag.HIPAASecurityChecks, cdk_nag.ServerlessChecks)


def test_each_finding_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = cdk.App(context=NO_BUNDLING, outdir=str(tmp_path))
    with_key = replace(environment("prod").with_placeholders(), customer_key=KEY, records_reads=True)
    application.build(app, with_key, shipped_contract())
    cdk.Validations.of(app).add_plugins(*(pack(app) for pack in PACKS))
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    report = json.loads((tmp_path / "validation-report.json").read_text())
    found = {each["ruleName"] for pack in report["pluginReports"] for each in pack["violations"]}
    excepted = {f"{pack}-{each['rule']}" for each in REVIEW["exception"] for pack in each["packs"]}
    assert found == excepted


def test_what_controls_name_is_there() -> None:
    for control in REVIEW["control"]:
        for place in control["where"].replace(";", ",").split(","):
            path = place.strip()
            folders = ("", "stacks/constructs")
            assert any((ROOT / folder / path).exists() for folder in folders), f"{control['name']}: {path}"
