"""A plane that stays: an alarm arrives whatever is broken meanwhile, and nothing is left of a killed one."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from contract.scaffold import new_participant
from eventplane.account import Fate
from eventplane.contract import ParticipantKind
from lab.consumers import open_inbox, read_batch
from lab.control_room.plane import RoomFault
from lab.control_room.server import BUTTONS
from lab.network import LOOPBACK
from lab.up.folder import Running, stop
from stacks.names import url_output
from tests.browser import Page
from tests.e2e.conftest import Desk, state
from tests.eventually import eventually
from tests.integration.mqtt import TestClient
from tests.listeners import elsewhere, listeners

ALARM = "org.eventplane.alarm.keyword.v1"
READING = "org.eventplane.health.reading.v1"
ROOM_S = 150.0
"""How long an alarm may take: a message that a killed router had in its hands comes again after 35 s."""


@pytest.fixture
def running(desk: Desk) -> Running:
    return desk.running


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with Page(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(browser: Page, running: Running) -> Iterator[Page]:
    """The control room of the plane."""
    browser.open(running.control_room)
    browser.wait_for("document.body.dataset.ready")
    yield browser
    assert browser.problems == []
    browser.open("about:blank")


def shown(running: Running, id: str, inbox: str) -> str:
    """What the control room says of an event at an inbox, '' while it waits."""
    for event in state(running)["events"]:
        for delivery in event["deliveries"]:
            if (event["id"], delivery["inbox"]) == (id, inbox) and delivery["fate"] != Fate.WAITING:
                return str(delivery["account"])
    return ""


@pytest.mark.parametrize(
    ("more", "inbox", "account"),
    [
        ({}, "alarm-centre", "in the inbox"),
        ({"expirytime": "2026-01-01T00:00:00Z"}, "alarm-centre", "expired: expirytime"),
        ({"type": READING}, "care-analytics", "refused by the router of device.outbox: payload_invalid"),
    ],
)
def test_an_own_event_is_shown(running: Running, more: dict[str, Any], inbox: str, account: str) -> None:
    id, service = uuid4().hex, "health-service" if more.get("type") else "voice-service"
    event = {
        "specversion": "1.0",
        "id": id,
        "source": f"/homes/home-1/{service}",
        "type": ALARM,
        "data": {"keyword": "help"},
        **more,
    }
    with TestClient("own", LOOPBACK, running.broker_port) as client:
        client.publish(f"eventplane/{service}/outbox", json.dumps(event).encode())
    assert eventually(lambda: shown(running, id, inbox) == account, ROOM_S, every_s=0.1)
    if more:
        return
    url = running.outputs[url_output("alarm-centre", "Inbox")]
    read_batch(open_inbox("alarm-centre", running.cloud.client("sqs"), url), list)
    assert eventually(lambda: shown(running, id, inbox) == "handled by alarm-centre", ROOM_S, every_s=0.1)


def send_alarm(page: Page) -> str:
    """Send an alarm by its button, and return the event's id."""
    page.run("document.getElementById('said').textContent = ''")
    page.run("document.getElementById('send').click()")
    page.wait_for("document.getElementById('said').textContent.startsWith('Event ')")
    return str(page.run("document.getElementById('said').textContent.split(' ')[1]"))


@pytest.mark.parametrize("fault", RoomFault)
def test_each_button_breaks_the_plane_and_an_alarm_sent_meanwhile_arrives(
    page: Page, fault: RoomFault
) -> None:
    button = f"document.querySelector('[data-fault={fault}]')"
    page.run(f"{button}.click()")
    page.wait_for(f"document.getElementById('said').textContent.endsWith('{BUTTONS[fault][0]}: done.')")
    id = send_alarm(page)
    if fault is RoomFault.NETWORK:
        page.wait_for("Number(document.querySelector('[data-counter=waiting]').textContent) > 0", ROOM_S)
        page.wait_for("document.querySelectorAll('path.cut').length === 1")
    if fault is RoomFault.S3:
        page.wait_for("document.querySelectorAll('[data-stage=archive].down').length === 1")
    if fault is RoomFault.NETWORK:
        page.run(f"{button}.click()")
    page.wait_for(f"document.querySelector('tr.arrived[data-id=\"{id}\"]')", ROOM_S)
    if fault is RoomFault.S3:
        page.run(f"{button}.click()")
    page.wait_for(f"{button}.dataset.on === 'no'", ROOM_S)


def test_nothing_is_lost_in_the_end(running: Running) -> None:
    def is_complete() -> bool:
        counters = state(running)["counters"]
        is_over = counters["due"] == counters["received"] + counters["ended"]
        return bool(is_over and counters["ended"] and not counters["lost"])

    assert eventually(is_complete, ROOM_S, every_s=0.5)


FOREIGN = ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"})


def test_every_listener_is_on_the_loopback_interface_and_serves_no_web_page(running: Running) -> None:
    found = listeners()
    ours = {running.broker_port, *(urlsplit(url).port for url in (running.control_room, running.cloud.url))}
    assert ours <= {port for _, port in found}
    assert elsewhere(found) == []
    paths = ("/", "/healthz", "/metrics", urlsplit(running.control_room).path, "/?Action=ListQueues")
    served = [
        (port, path, headers)
        for _, port in found
        for path in paths
        for headers in FOREIGN
        if status(port, path, headers) not in (None, HTTPStatus.FORBIDDEN)
    ]
    assert served == []


def status(port: int, path: str, headers: Mapping[str, str]) -> int | None:
    """What a web page gets, None where nobody speaks HTTP."""
    with closing(HTTPConnection(LOOPBACK, port, timeout=10)) as connection:
        try:
            connection.request("GET", path, headers=dict(headers))
            return connection.getresponse().status
        except (OSError, HTTPException):
            return None


def test_a_second_one_says_where_the_first_is(running: Running, desk: Desk) -> None:
    second = desk.command("start")
    assert second.returncode == 1
    assert running.control_room in second.stdout


def test_a_webhook_without_its_url_is_not_published(running: Running, desk: Desk) -> None:
    contract = Path(running.contract_file)
    before = contract.read_text()
    try:
        new_participant(contract, "night-nurse", ParticipantKind.CLOUD_SERVICE, webhook=True).write()
        published = desk.command("publish")
    finally:
        contract.write_text(before)
    assert published.returncode == 1
    assert "no URL is known for the webhook of night-nurse" in published.stdout
    assert "WEBHOOK=night-nurse=http://" in published.stdout


def test_nothing_is_left_of_a_killed_one(running: Running, desk: Desk) -> None:
    desk.kill()
    # At once: functions that find their cloud gone end by themselves, sooner than a command starts.
    assert stop(desk.folder) > 0
    down = desk.command("down")
    assert (down.returncode, down.stdout.partition(";")[0]) == (1, "no plane is up in this checkout")
