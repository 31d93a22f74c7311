"""A cloud, whichever it is: address, credentials, and the real `cdk bootstrap` and `cdk deploy` to it."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import boto3

from lab.errors import DeployError, ToolMissingError
from lab.process import Child, Supervisor

_LOGS: Final = "/aws/lambda/"


@dataclass(frozen=True)
class CloudEndpoint:
    """An AWS-compatible cloud and the credentials of its owner.

    `url` takes every AWS API call; devices connect to `mqtt_host`:`mqtt_port` with mutual TLS and trust
    `ca_pem`. The credentials may do everything: they are for deployment and for looking at results.
    """

    url: str
    region: str
    account: str
    mqtt_host: str
    mqtt_port: int
    ca_pem: str
    access_key_id: str
    secret_access_key: str

    def environment(self) -> dict[str, str]:
        """Return our environment for a child process whose AWS calls go to this cloud only.

        Profiles, files and instance metadata are disabled.
        """
        return {
            **environment_without_credentials(self.account, self.region),
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
        }

    def client(self, service: str) -> Any:
        """A boto3 client of `service` (`sqs`, `iot`, ...) with the owner's credentials."""
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=self.region,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
        )


def function_logs(cloud: CloudEndpoint, prefix: str = "", pattern: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each event in the logs of functions whose names begin with `prefix`, with the function's name."""
    logs, wanted = cloud.client("logs"), {"filterPattern": pattern} if pattern else {}
    for group in logs.describe_log_groups(logGroupNamePrefix=f"{_LOGS}{prefix}")["logGroups"]:
        name = group["logGroupName"]
        for page in logs.get_paginator("filter_log_events").paginate(logGroupName=name, **wanted):
            for event in page["events"]:
                yield name.removeprefix(_LOGS), event


def environment_without_credentials(account: str, region: str) -> dict[str, str]:
    """Return our environment for a child process that names an account and a region, and cannot enter it."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "CDK_DEFAULT_ACCOUNT": account,
        "CDK_DEFAULT_REGION": region,
    }


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
