"""The real `cdk bootstrap` and `cdk deploy`, against a given cloud."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from local.cloud import CloudEndpoint
from local.errors import DeployError, ToolMissingError
from local.process import Child, Supervisor

ROOT: Final = Path(__file__).parent.parent
CDK: Final = ROOT / "node_modules" / ".bin" / "cdk"
TOOLS: Final = ROOT / ".venv" / "bin"

Outputs = dict[str, dict[str, str]]
"""The values that stacks hand out: stack name -> output name -> value."""


def deploy(
    supervisor: Supervisor, cloud: CloudEndpoint, *, app: Path = ROOT, environment: str = "local"
) -> Outputs:
    """Deploy all stacks of the CDK app in directory `app`, and return their outputs.

    The account is bootstrapped while the app is synthesised; repeating either changes nothing.

    Args:
        supervisor: owns the commands; logs and the assembly go to its run directory.
        cloud: where to deploy.
        app: a directory with a `cdk.json`.
        environment: given to the app as context `env`.

    Raises:
        ToolMissingError: the CDK's command line is not installed.
        DeployError: a step failed; its `log` tells why.
    """
    if not CDK.exists():
        raise ToolMissingError("the CDK command line")
    run_dir = supervisor.run_dir.resolve()
    assembly, outputs = run_dir / "cdk.out", run_dir / "outputs.json"
    env = _environment(cloud)

    def cdk(step: str, *arguments: str, cwd: Path) -> Child:
        return supervisor.start(f"cdk-{step}", [str(CDK), step, *arguments, "--no-notices"], env=env, cwd=cwd)

    # Bootstrap names its target and runs outside the app, so it need not wait for the synthesis.
    bootstrap = cdk("bootstrap", f"aws://{cloud.account}/{cloud.region}", cwd=run_dir)
    synth = cdk("synth", "--quiet", "--context", f"env={environment}", "--output", str(assembly), cwd=app)
    _finish("synth", synth)
    _finish("bootstrap", bootstrap)

    outputs.unlink(missing_ok=True)
    options = ["--require-approval", "never", "--method", "direct", "--concurrency", "4"]
    _finish(
        "deploy",
        cdk("deploy", "--all", "--app", str(assembly), "--outputs-file", str(outputs), *options, cwd=run_dir),
    )
    values: Outputs = json.loads(outputs.read_text()) if outputs.exists() else {}
    return values


def _finish(step: str, child: Child) -> None:
    if returncode := child.wait():
        raise DeployError(step, returncode, child.log)


def _environment(cloud: CloudEndpoint) -> dict[str, str]:
    return {
        **cloud.environment(),
        "PATH": f"{TOOLS}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "NO_COLOR": "1",
    }
