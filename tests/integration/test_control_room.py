"""The control room in a real browser: what it draws, and what each button does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from local.control_room.plane import Fault
from local.control_room.server import BUTTONS, ControlRoom
from tests.browser import Page
from tests.fake_plane import SENDER, FakePlane, alarm

HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=document.title='taken'>"


@pytest.fixture
def plane() -> FakePlane:
    return FakePlane()


@pytest.fixture
def page(plane: FakePlane, browser: Page) -> Iterator[Page]:
    """The room on a phone; that it fits a screen too, test_pages.py shows."""
    with ControlRoom(plane) as room:
        browser.resize(390)
        browser.open(room.url)
        browser.wait_for("document.body.dataset.ready")
        yield browser
        assert browser.problems == []
        browser.open("about:blank")


def button(fault: Fault) -> str:
    return f"document.querySelector('[data-fault={fault}]')"


def counter(name: str) -> str:
    return f"Number(document.querySelector('[data-counter={name}]').textContent)"


def test_an_alarm_is_drawn_and_listed_with_where_it_went_and_why(page: Page) -> None:
    page.run("document.getElementById('alarm').click()")
    page.wait_for("document.querySelector('tr.arrived')")
    text = page.run("document.querySelector('tr.arrived').innerText")
    assert "org.eventplane.alarm.keyword.v1" in text
    assert "by everything-to-cloud → alarms-to-alarm-centre" in text
    page.run("document.querySelector('tr.arrived li:nth-child(2) summary').click()")
    assert 'type starts with "org.eventplane.alarm."' in page.run(
        "document.querySelector('tr.arrived').innerText"
    )
    page.run("document.getElementById('alarm').click()")
    page.wait_for("document.querySelectorAll('tr.arrived').length === 2")
    assert page.run("document.querySelectorAll('tr.arrived details[open]').length") == 1
    page.wait_for(f"{counter('received')} === 6 && {counter('sent')} === 2 && {counter('lost')} === 0")
    page.wait_for("document.getElementById('said').textContent === 'Alarm alarm-2 is sent.'")
    assert "2 passed" in page.run("document.querySelector('[data-stage=inboxes]').textContent")
    assert page.run("document.querySelector('[data-latency=p50_ms]').textContent").endswith(" ms")
    assert page.run("document.getElementById('lines').innerText").endswith("eventplane send event.json")
    assert page.run("document.scrollingElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("fault", Fault)
def test_each_button_strikes_and_an_alarm_sent_during_the_fault_arrives(
    page: Page, plane: FakePlane, fault: Fault
) -> None:
    page.run(f"{button(fault)}.click()")
    page.wait_for(f"{button(fault)}.dataset.on === 'yes'")
    assert plane.asked == [("strike", fault)]
    page.run("document.getElementById('alarm').click()")
    page.wait_for("document.querySelector('#events tr')")
    if fault is Fault.NETWORK:
        assert page.run("document.querySelectorAll('path.cut').length") == 1
    else:
        assert page.run("document.querySelectorAll('g.down').length") == 1
    if fault is not Fault.S3:
        page.wait_for("document.getElementById('verdict').textContent === '3 in flight'")
        page.wait_for(f"{counter('waiting')} === 1 && {counter('received')} === 0")
        assert page.run("document.querySelectorAll('tr.open').length") == 1
    if fault.is_lasting:
        page.run(f"{button(fault)}.click()")
    else:
        assert page.run(f"{button(fault)}.disabled") is True
        plane.heal(fault)  # its supervisor starts a killed process again
    page.wait_for(f"{button(fault)}.dataset.on === 'no'")
    assert page.run(f"{button(fault)}.textContent") == BUTTONS[fault][0]
    assert plane.asked == [("strike", fault), ("heal", fault)]
    page.wait_for(f"document.querySelector('tr.arrived') && {counter('received')} === 3")
    assert page.run("document.querySelectorAll('g.down, path.cut').length") == 0
    assert page.run("document.getElementById('verdict').textContent") == "nothing lost"


def test_a_plane_that_fails_is_said_and_found_again(page: Page, plane: FakePlane) -> None:
    plane.is_broken = True
    page.wait_for("!document.getElementById('silent').hidden")
    assert "the emulated cloud has ended" in page.run("document.getElementById('silent').innerText")
    plane.is_broken = False
    page.wait_for("document.getElementById('silent').hidden")
    # The browser itself notes each refused answer.
    page.problems.clear()


def test_no_text_of_an_event_becomes_code(page: Page, plane: FakePlane) -> None:
    plane.tally.sent(alarm(7, id=HOSTILE, source=f"/{'long' * 40}"), SENDER, 0)
    page.wait_for("document.querySelector('#events tr')")
    assert page.run("document.querySelector('#events tr').dataset.id") == HOSTILE
    assert page.run("document.title") == "Control room"
    assert page.run("document.scrollingElement.scrollWidth <= innerWidth")
