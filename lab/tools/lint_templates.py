"""`python lab/tools/lint_templates.py`: checks the templates of all environments on AWS with cfn-lint.

The tests deploy those of the emulated environment. Templates are synthesised without their assets, which
needs no network. Those that keep data have placeholders for what an operator has to fill in, and everything
that is optional. cfn-lint knows what each region has.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import aws_cdk as cdk

ROOT: Final = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from contract import load_contract  # noqa: E402
from stacks.application import build  # noqa: E402
from stacks.config import ENVIRONMENTS  # noqa: E402
from stacks.environment import Environment  # noqa: E402
from stacks.settings import CostSettings, DeviceDomain, ObjectLock  # noqa: E402

REGIONS: Final = ("eu-central-1", "us-east-1")
"""What an environment without a region is checked for."""

TIMEOUT_S: Final = 900
"""Of one environment, which takes 15 s on a processor of its own."""

_IGNORED: Final = {
    "W3005": "The CDK writes dependencies that follow from references already.",
}


def synthesise(environment: Environment, directory: Path) -> list[Path]:
    """Write the templates of `environment` below `directory`, and return their files."""
    context: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text())["context"]
    app = cdk.App(context={**context, "aws:cdk:bundling-stacks": []}, outdir=str(directory))
    build(app, _with_options(environment) if environment.keeps_data else environment, load_contract())
    app.synth()
    return sorted(directory.glob("*.template.json"))


def _with_options(environment: Environment) -> Environment:
    lock = environment.retention.lock or ObjectLock(mode="governance", days=30)
    costs = CostSettings(subscribers=("owner@example.org",), monthly_usd=100, anomaly_usd=20)
    environment = environment.with_placeholders()
    certificate = f"arn:aws:acm:{environment.region}:123456789012:certificate/1234abcd"
    domain = DeviceDomain(name="devices.example.org", certificate=certificate)
    return replace(
        environment,
        retention=replace(environment.retention, lock=lock),
        costs=environment.costs or costs,
        device_domain=environment.device_domain or domain,
    )


def lint(environment: Environment, templates: list[Path]) -> int:
    """Print what cfn-lint finds, and return its exit status."""
    regions = (environment.region,) if environment.region else REGIONS
    command = [str(Path(sys.executable).parent / "cfn-lint"), "--format", "parseable"]
    command += ["--regions", *regions, "--ignore-checks", *_IGNORED, "--", *map(str, templates)]
    return subprocess.run(command, check=False, timeout=TIMEOUT_S).returncode


def main() -> int:
    """Exit status 1 where cfn-lint finds something."""
    failed = []
    for environment in ENVIRONMENTS.values():
        if environment.is_emulated:
            continue
        with tempfile.TemporaryDirectory() as directory:
            if lint(environment, synthesise(environment, Path(directory))):
                failed.append(environment.name)
    if failed:
        print(
            f"cfn-lint: findings in the templates of {', '.join(failed)}; each names its rule",
            file=sys.stderr,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
