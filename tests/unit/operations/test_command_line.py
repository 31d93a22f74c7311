"""`python -m eventplane`: one name for commands of two packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoRegionError

from eventplane.__main__ import COMMANDS, main
from operations.errors import explained

ROOT = Path(__file__).parents[3]


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])

    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


def test_the_commands_are_loaded_when_they_are_called() -> None:
    program = "import sys, eventplane.__main__; print({'boto3', 'operations', 'yaml'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout == "set()\n"


def test_a_missing_package_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(COMMANDS, "trace", ("operations_of_nobody.trace", ""))

    assert main(["trace"]) == 1
    assert "operations_of_nobody is missing; run this from the checkout" in capsys.readouterr().err


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "ReceiveMessage")


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (refused("AccessDenied"), "ask for a role"),
        (refused("ExpiredToken"), "log in again"),
        (refused("OverLimit"), "can be repeated"),
        (refused("ResourceNotFoundException"), "with --env"),
        (NoRegionError(), "set AWS_REGION"),
        (EndpointConnectionError(endpoint_url="https://sqs"), "check the network"),
    ],
)
def test_what_aws_refuses_is_said_with_a_remedy(error: ClientError, remedy: str) -> None:
    assert remedy in str(explained(error))
