"""Every command of every page: run on the plane of `make up`, or listed with the reason why it is not."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lab.network import free_port
from lab.plane import Plane
from tests.e2e.conftest import Desk, asked, own_desk, state
from tests.eventually import eventually
from tests.plane import shipped_contract
from tests.tutorials import FOLDER, ROOT, Reader, Shell, clean_environment, shell_lines

OTHER_PAGES = {
    "CHANGELOG.md": "it is history",
    "docs/tutorials/": "they are followed, with what they print: below, tests/unit",
    "docs/adr/": "they are history",
    "docs/reference/contract.md": "with what it prints: tests/unit/contract/test_commands.py",
    "lab/examples/nats/": "it needs a NATS server: lab/examples/nats/tests",
}
"""Pages without a command that is run here, by their beginning."""

ELSEWHERE = {
    r"make (up|setup|check|test|demo|synth|diff|deploy|destroy|audit|bench)": "it builds, tests or deploys",
    r"make (smoke-aws|trial)": "it needs an account, or takes minutes: tests/unit/lab",
    r"(npx )?cdk |aws ": "it needs an account and the AWS command line",
    r"bucket=": "of the line after it, which needs an account",
    r"pip install": "it installs packages",
    r"mosquitto -p|cc |(RECEIPT_MS=\d+ )?eventplane conformance": "with its own broker: tests/integration",
    r"eventplane contract (diff|prove|rehearse|simulate)": "it needs old files: tests/unit, tests/parts",
    r"eventplane contract rollout": "it watches for hours: tests/unit/operations, tests/unit/lab",
    r"eventplane contract explain event.json --contract new": "with the event of such a proof",
    r"mosquitto_passwd|sudo|eventplane-forwarder": "it is for a device",
    r"python -m (lab|tests|pytest|glue_jobs)": "it needs files of a demo, or is a test",
    r"python -m parts.webhooks": "it needs an endpoint on the internet",
    r"echo help|SENSOR=|READINGS=|EVENTPLANE_CLIENT_TELEMETRY=": "a program: tests/integration/client",
    r"eventplane certificate verify": "with a certificate: docs/tutorials/was-it-delivered.md",
    r"jq ": "of a row that somebody has at hand",
}
"""Commands that are not run here, by their beginning, and why."""

NOT_ZERO = {
    r"eventplane dead-letters redrive --letters": "the page shows a letter that cannot go back",
    r"eventplane replay .*--date": "nothing is lost on a desk, which it says",
    r"eventplane interest publish": "devices of the shipped contract send everything, which it says",
    r"eventplane subscriptions list": "carers have none yet, which it says",
    r"eventplane subscriptions history": "no event was decided by the subscription yet, which it says",
}
"""Commands that exit with 1, and why."""

DEVICE = "desk-2"
KEY = "carers/example/1"
NOW = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
YESTERDAY = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
MEANT = {
    r" --env (?:dev|prod)\b": "",
    r"\[[^]]*\]": "",
    r"SERIAL\.\.\.": "serial-1 serial-2",
    r"GROUP\.\.\.": "ward-1",
    r"\bTHING\b": DEVICE,
    r"\bCERTIFICATE\b": "$CERTIFICATE",
    r"\bKEY\b": KEY,
    r"--device NAME": "--device home-1",
    r"night-watch": "care-analytics",
    r"--from 2026-\d\d-\d\d --to 2026-\d\d-\d\dT[\d:]+Z": f"--from {NOW[:10]} --to {NOW}",
    r"--from 2026-\d\d-\d\d --to 2026-\d\d-\d\d": f"--from {YESTERDAY} --to {NOW[:10]}",
    r"2026-\d\d-\d\dT[\d:]+Z": NOW,
    r"2026-\d\d-\d\d": NOW[:10],
    r"aws:amz:[\w-]+:": "aws:amz:$AWS_REGION:",
}
"""What a reader writes for what a page leaves open; days are today's."""

ALARM = "org.eventplane.alarm.keyword.v1"
INBOX = "arn:aws:sqs:us-east-1:000000000000:eventplane-local-carers-inbox"
FILES = {
    "news.json": {"protocol": "SQS", "sink": INBOX, "types": ["org.eventplane.notice.many.v1"]},
    "event.json": {"specversion": "1.0", "id": "1", "source": "/s", "type": ALARM},
}

READING = "org.eventplane.health.reading.v1"
SECONDS = 300.0


def is_run(command: str) -> bool:
    return not any(re.match(each, command) for each in ELSEWHERE)


def meant(written: re.Match[str]) -> str:
    """What a reader writes instead of what a page leaves open."""
    return list(MEANT.values())[(written.lastindex or 1) - 1]


def pages() -> dict[str, list[str]]:
    """The commands of each page."""
    listed = subprocess.check_output(["git", "ls-files", "*.md"], cwd=ROOT, text=True).splitlines()
    found = {each: shell_lines(ROOT / each) for each in listed if not each.startswith(tuple(OTHER_PAGES))}
    return {name: commands for name, commands in found.items() if commands}


PAGES = pages()
HERE = [name for name, commands in PAGES.items() if any(map(is_run, commands))]


def test_no_reason_is_left_over() -> None:
    commands = [each for found in PAGES.values() for each in found]
    assert len(commands) > 80
    assert [each for each in ELSEWHERE if not any(re.match(each, known) for known in commands)] == []
    assert [each for each in NOT_ZERO if not any(re.match(each, known) for known in commands)] == []


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A plane of its own: what the pages send and break is in no other test's inboxes and counts."""
    with own_desk(tmp_path_factory.mktemp("documented")) as own:
        yield own


@pytest.fixture(scope="module")
def prelude(own: Desk, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is typed first; the plane has what the pages speak of."""
    running, folder = own.running, tmp_path_factory.mktemp("devices")
    plane = Plane(running.cloud, running.outputs, shipped_contract())
    plane.provision(DEVICE, folder)
    plane.register(DEVICE)
    (principal,) = running.cloud.client("iot").list_thing_principals(thingName=DEVICE)["principals"]
    certificate = principal.rpartition("/")[2]
    offers = {each["type"]: each for each in asked(running, "GET", "offers")}
    state_event = {**offers["org.eventplane.home.threshold.v1"]["event"], "statekey": KEY}
    asked(running, "POST", "send/carers", json.dumps(state_event))
    late = {"id": "late-1", "source": "/homes/7/health", "expirytime": "2026-01-01T00:00:00Z"}
    message = offers["org.eventplane.home.message.v1"]["event"]
    asked(running, "POST", "send/carers", json.dumps({**message, **late}))
    sqs = running.cloud.client("sqs")
    dead = sqs.get_queue_url(QueueName="eventplane-local-care-analytics-inbox-dlq")["QueueUrl"]
    for number in (1, 2, 3):
        event = {**offers[READING]["event"], "specversion": "1.0", "subject": "/scale"}
        event |= {"id": f"reading-{number}", "source": late["source"]}
        sqs.send_message(QueueUrl=dead, MessageBody=json.dumps(event))
    assert eventually(
        lambda: plane.waits("home-1", KEY, 0) or plane.item("home-1", KEY), SECONDS, every_s=0.2
    )
    return "\n".join(
        [
            f"source {shlex.quote(str(own.folder.environment))}",
            f"CERTIFICATE={certificate} URL=$EVENTPLANE_DISCOVERY_API AWS_SESSION_TOKEN=",
            "eventplane contract compile --output image.json >/dev/null",
            'make() { [ "$1" = smoke ] && eventplane smoke; }',
        ]
    )


@pytest.mark.parametrize("page", HERE)
def test_documented_commands_work_on_a_desk(page: str, own: Desk, prelude: str, tmp_path: Path) -> None:
    for name, document in FILES.items():
        (tmp_path / name).write_text(json.dumps(document))
    (tmp_path / "build").mkdir()
    new = ROOT / "contract" / "event_plane.yaml"
    links = {
        "new.yaml": new,
        "schemas": new.parent / "schemas",
        "docs": ROOT / "docs",
        ".venv": ROOT / ".venv",
    }
    for name, target in {**links, "build/up": own.folder.path}.items():
        (tmp_path / name).symlink_to(target)
    environment = clean_environment(XDG_STATE_HOME=str(tmp_path / "state"))
    shell = Shell(tmp_path / "terminal", tmp_path, environment, prelude)
    try:
        for command in filter(is_run, PAGES[page]):
            typed = re.sub("|".join(f"({each})" for each in MEANT), meant, command)
            expected = any(re.match(each, command) for each in NOT_ZERO)
            status, printed = shell.run(typed, SECONDS)
            assert status == expected, f"{typed}\n{printed}"
            assert "Traceback" not in printed
            assert "An error occurred" not in printed
    finally:
        shell.close(SECONDS)


"""How long a command may take on a busy machine: a deployment is one."""

OWN_SERVER = "8123"
"""The port of the server that a reader starts."""

MAKE = """
make() {{
  case "$1" in
    up) local_up status && sleep infinity ;;
    publish) local_up publish ${{2:+--webhook "${{2#WEBHOOK=}}"}} ;;
    packages) {python} {root}/lab/tools/packages.py --output build/packages ;;
    *) return 2 ;;
  esac
}}
"""
"""What `make` does here: it shares the plane of other tests, and installs no tools."""


@pytest.mark.parametrize("page", ["first-event", "add-a-service"])
def test_each_command_prints_what_the_page_shows(desk: Desk, tmp_path: Path, page: str) -> None:
    assert desk.running
    project = desk.project
    (project / "build").mkdir(exist_ok=True)
    if not (project / "build" / "up").is_symlink():
        (project / "build" / "up").symlink_to(desk.folder.path)
    python = shlex.quote(sys.executable)
    prelude = (
        f"local_up() {{ (cd {shlex.quote(str(ROOT))} && exec {python} -m lab.up "
        f'--folder {shlex.quote(str(desk.folder.path))} "$@"); }}\n'
        + MAKE.format(python=python, root=shlex.quote(str(ROOT)))
    )
    environment = clean_environment(XDG_STATE_HOME=str(tmp_path / "state"))
    environment["PATH"] = f"{ROOT / 'lab' / 'bin'}:{environment['PATH']}"
    # A trace exits with 3 where a reader leaves no receipts.
    statuses = frozenset({0, 3})
    with Reader(
        project, tmp_path / "terminals", environment, prelude=prelude, seconds=SECONDS, statuses=statuses
    ) as reader:
        reader.follow(_on_a_free_port(FOLDER / f"{page}.md", tmp_path))
    assert state(desk.running)["contract"] == desk.running.contract_version


def _on_a_free_port(page: Path, folder: Path) -> Path:
    """Return a copy of `page` in `folder` whose own server listens where nobody else does."""
    copy = folder / page.name
    copy.write_text(page.read_text().replace(OWN_SERVER, str(free_port())))
    return copy
