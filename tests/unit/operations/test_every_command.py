"""Every command, called wrongly: one line that says what to do, exit status 1 or 2, and never a traceback."""

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from eventplane.contract import Contract
from eventplane.resource_names import OWNER
from operations.command_line import Parser, tree
from operations.completion import words
from tests.fakes.aws import FakeAws
from tests.small_contract import mapped
from tests.unit.operations.support import Plane, Run

ROOT = Path(__file__).parents[3]
EVENT = {
    "specversion": "1.0",
    "id": "17",
    "source": "urn:test",
    "type": "org.eventplane.home.message.v1",
    "todevice": "home-1",
    "data": {"text": "hello"},
}

FILE = "FILE"
"""Stands for a file that has what the command reads."""

CONTRACT = "CONTRACT"
"""Stands for a file with a contract."""

MAPPED = "MAPPED"
"""Stands for a file with a contract that has mappings."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "audit list": (),
    "audit run": (),
    "audit show": ("2026-03-01",),
    "certificate": ("17",),
    "completion": ("bash",),
    "conformance": ("127.0.0.1:1",),
    "contract acl": (),
    "contract asyncapi": (),
    "contract catalogue": (),
    "contract check": (),
    "contract compile": ("--output", os.devnull),
    "contract diagram": (),
    "contract diff": (CONTRACT,),
    "contract explain": (FILE,),
    "contract floor": (CONTRACT,),
    "contract map": ("tele/plug/SENSOR", FILE, "--contract", MAPPED),
    "contract prove": (),
    "contract publish": (),
    "contract rehearse": (CONTRACT,),
    "contract rollout": ("status",),
    "contract schema": (),
    "contract simulate": ("--show", "calm"),
    "dead-letters list": (),
    "dead-letters redrive": ("17", "--letters"),
    "dead-letters show": (),
    "desired list": ("home-1",),
    "desired reset": ("kind/space/name", "--all"),
    "desired show": ("kind/space/name",),
    "fleet allow-replacement": ("home-1",),
    "fleet condemn": ("home-1", "c0ffee"),
    "fleet decommission": ("home-1",),
    "fleet groups": ("home-1",),
    "fleet list": (),
    "fleet quarantine": ("home-1",),
    "fleet recover": ("home-1",),
    "fleet register": ("home-1",),
    "fleet release": ("home-1",),
    "fleet show": ("home-1",),
    "inbox": ("carers",),
    "init": ("care-bell",),
    "interest publish": (),
    "interest show": (),
    "interest withdraw": (),
    "new contract": (),
    "new event-type": ("com.example.laundry.done.v1", "--sender", "carers"),
    "new participant": ("laundry-service", "--kind", "cloud-service"),
    "replay": ("--date", "2026-03-01"),
    "restore": ("fleet", "--at", "2026-03-01T08:30:00Z"),
    "send": (FILE, "--as", "carers"),
    "smoke": (),
    "subscriptions delete": ("carers", "news"),
    "subscriptions history": (),
    "subscriptions key": ("carers", "news"),
    "subscriptions list": ("carers",),
    "subscriptions put": ("carers", "news", FILE),
    "subscriptions show": ("carers", "news"),
    "trace": ("17",),
}
"""Each command with words that are right."""

NEW = {name for name in COMMANDS if name.startswith("new ")} | {"init"}
"""Commands that write into the folder they are typed in."""

LOCAL = {name for name in COMMANDS if name.startswith("contract ")} - {
    "contract publish",
    "contract rehearse",
    "contract rollout",
}
"""Commands about a contract that need no cloud."""

CLOUD = sorted(set(COMMANDS) - LOCAL - NEW - {"completion", "conformance", "interest publish"})
"""Those that do. By the contract here devices send everything: there is no interest to publish."""


def failed(name: str) -> int:
    """Return the status of a command that fails: of some 1 is a result."""
    with_results = "contract prove", "contract rehearse", "contract rollout", "contract simulate"
    return 2 if name in with_results else 1


@pytest.fixture(autouse=True)
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Leave no settings of AWS, of this machine or its environment."""
    for name in os.environ:
        if name.startswith(("AWS_", "EVENTPLANE_")):
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.chdir(tmp_path)
    return


@pytest.fixture
def files(tmp_path: Path, deployed: Path, contract: Contract) -> dict[str, Path]:
    """The files that stand for `FILE`, `CONTRACT` and `MAPPED`."""
    file, mapping = tmp_path / "event.json", tmp_path / "mapped.json"
    file.write_text(json.dumps(EVENT))
    changes = {"mappings/sensor/when": {"/type": EVENT["type"]}}
    mapping.write_bytes(mapped(contract, "org.eventplane.alarm.keyword.v1", changes).canonical)
    return {FILE: file, CONTRACT: deployed, MAPPED: mapping}


def line(name: str, files: dict[str, Path]) -> list[str]:
    """The words of the command `name` that are right, with `files`."""
    return [*name.split(), *(str(files.get(each, each)) for each in COMMANDS[name])]


def is_one_line(err: str) -> bool:
    """Whether it is one line with a remedy after a semicolon."""
    return err.endswith("\n") and err.count("\n") == 1 and "; " in err and "Traceback" not in err


@cache
def known_words() -> dict[str, list[str]]:
    return {" ".join(path): found for path, found in words(tree()) if not path or path[-1][0] != "-"}


def test_the_list_has_every_command() -> None:
    paths = known_words()
    assert set(COMMANDS) == {
        each for each in paths if each and not any(p.startswith(f"{each} ") for p in paths)
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_help_needs_neither_cloud_nor_file_and_wrong_words_are_named(
    run: Run, name: str, files: dict[str, Path]
) -> None:
    status, out, err = run(*name.split(), "--help")
    assert (status, err, "--env NAME" in out) == (0, "", True)

    options = [each for each in ("--date", "--from", "--to") if each in known_words()[name]]
    wrong = [["--nonsense"], *([each, "2026-99-99"] for each in options)]
    for more in wrong:
        status, out, err = run(*line(name, files), *more)
        assert (status, out) == (2, "")
        assert is_one_line(err), err
        assert more[-1] in err
    if COMMANDS[name]:
        status, out, err = run(*name.split())
        assert (status, out) == (2, "")
        assert is_one_line(err) or "say " in err, err


@pytest.mark.parametrize(
    ("option", "name"),
    [
        *(("--contract", each) for each in COMMANDS if "--contract" in known_words()[each]),
        *((FILE, each) for each, more in COMMANDS.items() if FILE in more),
    ],
)
def test_a_bad_contract_or_file_is_one_line(
    run: Run, name: str, option: str, files: dict[str, Path], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.json"
    for content in (None, b"{", b"[]", b"\xff", b"[" * 100_000):
        if content is not None:
            bad.write_bytes(content)
        given, more = (files | {FILE: bad}, []) if option == FILE else (files, [option, str(bad)])
        status, out, err = run(*line(name, given), *more)
        assert (status, out) == (failed(name), "")
        # The commands that find problems print all of them.
        assert is_one_line(err) or (name in ("contract check", "contract compile") and "problem(s)" in err)
        assert str(bad) in err


def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr("operations.cloud._CONFIG", None)
    monkeypatch.setattr("operations.cloud._LONGER", {})


@pytest.mark.long
@pytest.mark.parametrize("name", CLOUD)
def test_credentials_region_and_endpoint_are_asked_for_and_used(
    run: Run, name: str, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    region = ["--region", "eu-central-1"]
    endpoint = ["--endpoint-url", "http://127.0.0.1:1"]
    status, out, err = run(*line(name, files), *region)
    assert (status, out, is_one_line(err), "log in" in err) == (failed(name), "", True, True), err
    settings(monkeypatch)
    status, out, err = run(*line(name, files))
    assert (status, out, is_one_line(err), "AWS_REGION" in err) == (failed(name), "", True, True), err
    status, out, err = run(*line(name, files), *region, *endpoint)
    # It has come as far as the endpoint.
    assert (status, out, is_one_line(err), "127.0.0.1:1" in err) == (failed(name), "", True, True), err


@pytest.mark.lost_answers
@pytest.mark.parametrize("name", CLOUD)
def test_a_command_for_a_second_plane_of_the_account_is_refused_and_touches_nothing(
    run: Run,
    name: str,
    files: dict[str, Path],
    plane: Plane,
    fake_aws: FakeAws,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: set[str] = set()
    client = fake_aws.client
    fake_aws.parameters.values[OWNER] = "prod"
    monkeypatch.setattr(fake_aws, "client", lambda service, **_: used.add(service) or client(service))
    monkeypatch.setattr("operations.cloud.Cloud.sqs", property(lambda _: pytest.fail("it uses a queue")))
    status, out, err = run(*line(name, files))
    assert (status, out, is_one_line(err), used) == (failed(name), "", True, {"ssm"}), err
    assert "the plane 'prod'" in err
    assert "another account or region for 'test'" in err


@pytest.mark.parametrize("url", ["nope", "http://", "ftp://x", "http://127.0.0.1:99999", "http://[::1"])
def test_an_endpoint_that_is_no_url_is_one_line(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings(monkeypatch)
    status, out, err = run("fleet", "list", "--region", "eu-central-1", "--endpoint-url", url)
    assert (status, out, is_one_line(err), "--endpoint-url" in err) == (1, "", True, True), err


def test_region_and_endpoint_may_come_first_or_from_the_environment(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(monkeypatch)
    options = ["--region", "eu-central-1", "--endpoint-url", "http://127.0.0.1:1"]
    assert "127.0.0.1:1" in run(*options, "fleet", "list")[2]
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert "127.0.0.1:1" in run("fleet", "list")[2]


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - set(CLOUD) - {"conformance", "interest publish"}))
def test_every_command_without_a_cloud_prints_json(
    run: Run, name: str, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = line(name, files)
    for number, given in enumerate((["--json", *words], [*words, "--json"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        if name in ("new participant", "new event-type"):
            assert run("new", "contract")[0] == 0
        status, out, err = run(*given)
        assert (status, err) == (0, "")
        assert isinstance(json.loads(out), dict)


def test_there_is_one_way_to_print() -> None:
    """It knows --json, and so does every command."""
    rooms = ("operations/*.py", "contract/**/*.py", "parts/*/command.py")
    files = [each for room in rooms for each in ROOT.glob(room)]
    writers = [each for each in files if re.search(r"\bprint\(|sys\.stdout", each.read_text())]
    assert [str(each.relative_to(ROOT)) for each in writers] == ["operations/command.py"]
    for path in known_words():
        if path in COMMANDS:
            module = inspect.getmodule(leaf(path).get_default("run"))
            assert re.search(r"\bpresent(_rows)?\(", inspect.getsource(module)), path


def leaf(path: str) -> Parser:
    """Return the parser of a command."""
    parser = tree()
    for word in path.split():
        parser.complete()
        choices = next(each.choices for each in parser._actions if isinstance(each.choices, Mapping))
        parser = choices[word]
    parser.complete()
    return parser


def test_a_named_profile_wins_over_keys_in_the_environment(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status, _, err = run("fleet", "list", "--profile", "nobody")
    assert (status, is_one_line(err), "nobody" in err) == (1, True, True)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    (tmp_path / "config").write_text("[profile desk]\nregion = eu-west-1\n")
    (tmp_path / "keys").write_text("[desk]\naws_access_key_id = of-the-profile\naws_secret_access_key = x\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    seen = []

    def look(*_: object) -> int:
        import boto3

        session = boto3.Session()
        seen.append((session.get_credentials().access_key, session.region_name))
        return 0

    monkeypatch.setattr("parts.fleet.command._list", look)
    monkeypatch.setattr("parts.fleet.command.fleet_of", lambda *_: None)
    monkeypatch.setattr("parts.fleet.command.enter", lambda _: None)
    assert run("fleet", "list", "--profile", "desk")[0] == 0
    assert run("fleet", "list")[0] == 0
    # What an option set is gone with its command.
    assert [keys for keys, _ in seen] == ["of-the-profile", "of-the-environment"]
    assert seen[0][1] == "eu-west-1"


def test_an_address_that_would_show_the_signature_is_refused(run: Run) -> None:
    status, _, err = run("subscriptions", "list", "carers", "--url", "http://api.example")
    assert (status, is_one_line(err), "https://HOST" in err) == (2, True, True)


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_completion_knows_every_command(run: Run, shell: str) -> None:
    status, out, _ = run("completion", shell)
    assert status == 0
    assert all(word in out for name in COMMANDS for word in name.split())


TYPED = {
    "eventplane fl": "fleet",
    "eventplane fleet qua": "quarantine",
    "eventplane contract diff --contr": "--contract",
    "eventplane --env dev dead-letters red": "redrive",
    "eventplane completion z": "zsh",
    "eventplane new participant laundry --kind cl": "cloud-service",
    "eventplane new participant laundry --kind cloud-service --descr": "--description",
}


def test_bash_completes(run: Run) -> None:
    script = run("completion", "bash")[1]
    for typed in TYPED:
        last = len(typed.split(" ")) - 1
        script += f"""
COMP_WORDS=({typed}); COMP_CWORD={last}; _eventplane; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(TYPED.values())


def test_it_runs_as_a_program_whose_reader_has_seen_enough() -> None:
    program = f"{sys.executable} -m eventplane contract check | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("care-at-home")
