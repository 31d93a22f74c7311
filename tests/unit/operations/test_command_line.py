"""`eventplane`: one name for commands of two packages."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoRegionError

from eventplane.__main__ import main
from operations import command_line
from operations.cloud import explained
from operations.command_line import NOUNS, run

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("command", "others"),
    [
        ("", {"boto3", "operations", "yaml"}),
        ("main(['contract', 'check', '--json'])", {"boto3", "botocore", "jinja2", "eventplane_client"}),
    ],
)
def test_a_command_loads_what_it_needs_when_it_is_called(command: str, others: set[str]) -> None:
    loaded = f"print({others} & set(sys.modules), file=sys.stderr)"
    program = f"import sys\nfrom eventplane.__main__ import main\n{command}\n{loaded}"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == "set()\n"


NO_ROOM = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
LACKING = "package {} is missing; install it: pip install '{}"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ConnectionRefusedError(111, "Connection refused"),
            "refused; check the network, and repeat the command",
        ),
        (NO_ROOM, "No space left on device; see that the disk has room"),
        (ModuleNotFoundError(name="boto3.inner"), LACKING.format("boto3", "eventplane[aws]")),
        (ModuleNotFoundError(name="yaml.inner"), LACKING.format("yaml", "eventplane[contract]")),
        (
            ModuleNotFoundError(name="eventplane_client.inner"),
            LACKING.format("eventplane_client", "eventplane-client"),
        ),
    ],
)
def test_what_the_machine_or_the_network_lacks_is_one_line_with_its_remedy(
    error: Exception, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise error

    assert run(fail) == 1
    err = capsys.readouterr().err
    assert (said in err, err.count("\n")) == (True, 1)


def test_a_missing_package_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(NOUNS, "trace", ("operations_of_nobody.trace", ""))

    assert main(["trace"]) == 1
    assert "operations_of_nobody is missing; install it" in capsys.readouterr().err


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
def test_a_refusal_of_aws_has_a_remedy(error: ClientError, remedy: str) -> None:
    assert remedy in str(explained(error))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that says its folder and the words that it got, with a .venv that is a link."""
    others = tmp_path / "other checkout" / "venv" / "bin"
    others.mkdir(parents=True)
    (others / "python").symlink_to(sys.executable)
    shutil.copy2(ROOT / "lab" / "bin" / "eventplane", others)
    folder = tmp_path / "a checkout"
    (folder / "eventplane").mkdir(parents=True)
    (folder / "eventplane" / "__init__.py").touch()
    program = "import os, sys\ndef main(): print(__file__, sys.argv[1:], os.getenv('PYTHONPATH'))\n"
    (folder / "eventplane" / "__main__.py").write_text(program)
    (folder / ".venv").symlink_to(others.parent)
    return folder


def test_the_command_of_a_checkout_runs_its_sources(checkout: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "eventplane").mkdir(parents=True)
    (elsewhere / "eventplane" / "__main__.py").write_text("raise SystemExit('the folder one is in')")
    command = checkout / ".venv" / "bin" / "eventplane"
    said = f"{checkout / 'eventplane' / '__main__.py'} ['send', 'a b', '']"

    for program in (str(command), os.path.relpath(command, elsewhere)):
        done = subprocess.run(
            [program, "send", "a b", ""],
            cwd=elsewhere,
            env={"PATH": os.defpath},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr, done.returncode) == (f"{said} None\n", "", 0)


def test_the_command_may_be_linked_from_a_folder_on_the_path(checkout: Path, tmp_path: Path) -> None:
    (checkout / ".venv").unlink()
    (tmp_path / "other checkout" / "venv").rename(checkout / ".venv")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "eventplane").symlink_to(checkout / ".venv" / "bin" / "eventplane")
    path = f"{folder}:{os.defpath}"

    done = subprocess.run(
        ["eventplane"], cwd="/", env={"PATH": path}, capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith(str(checkout))


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "status"), [("check >&-", 0), ("check 2>&-", 0), ("explain - <&-", 1), ("check >/dev/full", 1)]
)
def test_a_closed_or_full_stream_is_no_traceback(words: str, status: int, tmp_path: Path) -> None:
    program = f"exec '{sys.executable}' -m eventplane contract {words}"
    done = subprocess.run(["sh", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == status


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_any_locale_shows_a_result(words: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "\u00fc\udcff" / "bell"
    line = [sys.executable, "-m", "eventplane", "init", *words, str(folder)]
    for encoding in ("ascii", "utf-8:strict"):
        shutil.rmtree(folder, ignore_errors=True)
        done = subprocess.run(
            line, cwd=ROOT, env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, check=True
        )
        assert b"bell" in done.stdout
        assert not words or json.loads(done.stdout)["project"] == str(folder)


@pytest.mark.parametrize("words", [["explain", "/dev/zero"], ["check", "--contract", "/dev/zero"]])
def test_a_file_without_an_end_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contract", *words]) == 1
    err = capsys.readouterr().err
    assert "/dev/zero: " in err
    assert "cannot be read: File too large; name " in err


def test_each_noun_has_its_permissions() -> None:
    table = tomllib.loads(Path(command_line.__file__).with_name("permissions.toml").read_text())
    named = "".join(each["for"] for each in table["permission"])
    without_aws = {"completion", "conformance", "init", "new"}
    assert {each for each in NOUNS if f"`{each}" not in named} == without_aws
