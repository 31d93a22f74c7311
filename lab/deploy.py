"""The real `cdk bootstrap` and `cdk deploy`, against a given cloud."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from lab.cloud import CloudEndpoint, environment_without_credentials
from lab.errors import DeployError, ToolMissingError
from lab.process import Child, Supervisor

ROOT: Final = Path(__file__).parent.parent
CDK: Final = ROOT / "node_modules" / ".bin" / "cdk"
POLLING: Final = Path(__file__).with_name("cdk_polling.cjs")
TOOLS: Final = ROOT / ".venv" / "bin"
COMMANDS: Final = ROOT / "lab" / "bin"
"""Where the checkout's `eventplane` is."""

ENVIRONMENT: Final = "local"
"""The environment that is deployed here."""

DEPLOY: Final = ("deploy", "--all", "--require-approval", "never", "--concurrency", "4")
"""The words of `make deploy`."""

DIRECTLY: Final = ("--method", "direct")
"""Without change sets, which take an emulated cloud seconds each."""

Outputs = dict[str, dict[str, str]]
"""The values that stacks hand out: stack name -> output name -> value."""


def start_synthesis(
    supervisor: Supervisor,
    account: str,
    region: str,
    context: Mapping[str, str] | None = None,
) -> Child:
    """Begin to synthesise the CDK app for an account that need not be there yet; see `deploy`.

    `context` is given to the app beside its environment.
    Raises `ToolMissingError`.
    """
    assembly = str(_assembly(supervisor))
    given = {"env": ENVIRONMENT, **(context or {})}
    contexts = [word for name, value in given.items() for word in ("--context", f"{name}={value}")]
    words = ["synth", "--quiet", *contexts, "--output", assembly]
    return _cdk(supervisor, words, _tools(environment_without_credentials(account, region)), ROOT)


def deploy(supervisor: Supervisor, cloud: CloudEndpoint, synthesis: Child | None = None) -> Outputs:
    """Deploy all stacks of this checkout's CDK app, or of what `synthesis` makes, and return their outputs.

    The account is bootstrapped while the app is synthesised; repeating either changes nothing. Logs and the
    assembly go to the supervisor's run directory. Raises `ToolMissingError`, `DeployError`.
    """
    run_dir = supervisor.run_dir.resolve()
    outputs = run_dir / "outputs.json"
    env = _tools(cloud.environment()) | {"NODE_OPTIONS": f'--require "{POLLING}"'}
    # Bootstrap names its target and runs outside the app, so it need not wait for the synthesis.
    target = f"aws://{cloud.account}/{cloud.region}"
    bootstrap = _cdk(supervisor, ["bootstrap", target], env, run_dir)
    synthesis = synthesis or start_synthesis(supervisor, cloud.account, cloud.region)
    _finish("synth", synthesis)
    _finish("bootstrap", bootstrap)

    outputs.unlink(missing_ok=True)
    words = [*DEPLOY, "--app", str(_assembly(supervisor)), "--outputs-file", str(outputs), *DIRECTLY]
    _finish("deploy", _cdk(supervisor, words, env, run_dir))
    values: Outputs = json.loads(outputs.read_text()) if outputs.exists() else {}
    return values


def _assembly(supervisor: Supervisor) -> Path:
    return supervisor.run_dir.resolve() / "cdk.out"


def _cdk(supervisor: Supervisor, words: Sequence[str], env: Mapping[str, str], cwd: Path) -> Child:
    if not CDK.exists():
        raise ToolMissingError("the CDK command line")
    return supervisor.start(f"cdk-{words[0]}", [str(CDK), *words, "--no-notices"], env=env, cwd=cwd)


def _finish(step: str, child: Child) -> None:
    if returncode := child.wait():
        raise DeployError(step, returncode, child.log)


def _tools(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        **environment,
        "PATH": f"{TOOLS}{os.pathsep}{environment.get('PATH', os.defpath)}",
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "NO_COLOR": "1",
    }
