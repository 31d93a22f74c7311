"""Every page in a real browser: it fits and can be read, what it draws, and what each button does."""

import csv
import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from urllib.parse import unquote

import pytest

from contract import load_contract
from contract.catalogue import catalogue
from lab.audit_page.page import write_page
from lab.control_room.plane import RoomFault
from lab.control_room.server import ControlRoom
from tests.audit_report import FILE
from tests.browser import Page
from tests.fake_plane import SENDER, FakePlane, alarm
from tests.pages import HOSTILE, everything, write_pages
from tests.small_contract import with_changes

PHONE, SCREEN = 400, 1280
FITS = "document.scrollingElement.scrollWidth <= innerWidth"

UNREADABLE = """(() => {
  const numbers = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((each) => each / 255)
    .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const shape = each instanceof SVGElement && each.querySelector(":scope > rect");
      const rgb = numbers(shape ? getComputedStyle(shape).fill : getComputedStyle(each).backgroundColor);
      if (rgb.length === 3 || rgb[3] === 1) return rgb;
    }
    return [255, 255, 255];
  };
  for (const each of document.querySelectorAll("details")) each.open = true;
  // What axe does not look at. A drawn text with a halo is read on its halo.
  return [...document.querySelectorAll("svg text")].filter((each) => {
    const style = getComputedStyle(each);
    const on = style.stroke !== "none" ? numbers(style.stroke) : ground(each);
    const [darker, lighter] = [light(numbers(style.fill)), light(on)].sort((one, other) => one - other);
    return each.textContent && (lighter + 0.05) / (darker + 0.05) < 4.5;
  }).map((each) => each.outerHTML);
})()"""


USABLE = """[...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility())"""


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    files = write_pages(tmp_path_factory.mktemp("pages"))
    plane = FakePlane()
    plane.send_alarm()
    plane.strike(RoomFault.NETWORK)
    plane.strike(RoomFault.ROUTER)
    plane.send_alarm()
    with ControlRoom(plane) as room:
        yield {**{name: file.as_uri() for name, file in files.items()}, "control room": room.url}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, SCREEN])
@pytest.mark.parametrize("name", ["audit", "demo", "catalogue", "control room"])
def test_a_page_fits_and_can_be_read(
    browser: Page, urls: dict[str, str], name: str, width: int, scheme: str
) -> None:
    browser.resize(width)
    browser.set_scheme(scheme)
    browser.open(urls[name])
    if name == "control room":
        browser.wait_for("document.querySelector('#events tr')")
    assert browser.run(FITS)
    assert browser.run(UNREADABLE) == []
    assert browser.violations() == []
    # A word of a table's head is never broken.
    broken = "(each) => each.getClientRects().length > each.textContent.split(' ').length"
    assert browser.run(f"[...document.querySelectorAll('th a.term')].filter({broken}).length") == 0
    # A word leads to its meaning.
    browser.run("document.querySelector('a.term').click()")
    assert browser.run("document.querySelector('dt:target').id").startswith("word-")
    assert browser.problems == []


@pytest.mark.parametrize("name", ["audit", "demo", "catalogue", "control room"])
def test_the_keyboard_reaches_everything(browser: Page, urls: dict[str, str], name: str) -> None:
    browser.resize(PHONE)
    browser.open(urls[name])
    browser.wait_for(f"{USABLE}.length > 2")
    unreached = set(range(browser.run(f"{USABLE}.length")))
    for _ in range(len(unreached) + 1):  # once it leaves the page
        browser.press("Tab")
        unreached.discard(browser.run(f"{USABLE}.indexOf(document.activeElement)"))
    assert [browser.run(f"{USABLE}[{each}].outerHTML") for each in unreached] == []


LONG_TYPE = "org.example." + "a-type-that-nobody-would-want-to-read-on-a-phone." * 3 + "v1"

USE_AUDIT = """(() => {
  const right = (each) => each.getBoundingClientRect().right;
  const matches = () => document.getElementById("count").textContent;
  const clicked = (query) => { document.querySelector(query).click(); return matches(); };
  const saved = [];
  window.Blob = function (parts) { saved.push(parts.join("")); };
  URL.createObjectURL = () => "#";
  HTMLAnchorElement.prototype.click = () => {};
  const seen = {
    right: Math.max(...[...document.querySelectorAll("section, header")].map(right)),
    drawn: ["heat", "flow"].filter((each) => document.getElementById(each)),
    curves: document.querySelectorAll(".plot path").length,
    matches: [
      matches(), clicked("button[data-drill*=device_cloud]"), clicked(".holes button"),
      clicked("#heat button[aria-label^='home-1,']"),
    ],
  };
  const row = document.querySelector("details.finding");
  row.open = true;
  row.dispatchEvent(new Event("toggle"));
  seen.command = row.querySelector("pre").textContent;
  seen.object = row.querySelector("dd a").href;
  document.getElementById("csv").click();
  document.querySelector("[data-csv=routes]").closest(".scroll").nextElementSibling.click();
  return {...seen, saved};
})()"""


def test_the_audit_leads_to_its_findings(browser: Page, tmp_path: Path) -> None:
    write_page(everything(), tmp_path / "page.html", str(tmp_path / "archive"))
    browser.resize(PHONE)
    browser.open((tmp_path / "page.html").as_uri())
    browser.wait_for("document.body.dataset.ready === 'yes'")
    assert browser.run(FITS)
    seen = browser.run(USE_AUDIT)
    assert browser.run(FITS), "an open finding is too wide"
    assert browser.run("document.title") == "Delivery audit: broken"
    assert seen["right"] <= PHONE
    assert (seen["drawn"], seen["curves"]) == (["heat", "flow"], 1)
    # A hop, a hole and a cell lead to their findings; the device's hour to its own, not to that of home-10.
    assert seen["matches"] == ["4 match", *3 * ["1 matches"]]
    assert seen["command"].endswith("-- /homes/1/voice 1")
    assert unquote(seen["object"]) == f"{(tmp_path / 'archive').as_uri()}/{FILE}"
    # The export has what is filtered, and no cell that a spreadsheet would run.
    findings, routes = seen["saved"]
    rows = list(csv.DictReader(StringIO(findings)))
    assert [(each["device"], each["detail"], each["sequence"]) for each in rows] == [("home-1", HOSTILE, "7")]
    assert rows[0]["type"] == '\'=HYPERLINK("http://example.org")'
    (route,) = csv.DictReader(StringIO(routes))
    assert (route["route"], route["lost"], route["destination"]) == ("to-care", "3", "care.inbox")


USE_CATALOGUE = """(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const motion = document.getElementById("type-org.eventplane.activity.motion.v1");
  const count = (of) => document.querySelector(`[data-of=${of}] .count`).textContent;
  const seen = {
    open: motion.open, text: motion.textContent, boxes: all("svg a").length,
    counts: ["types", "participants", "routes"].map(count),
    right: Math.max(...all("svg text").map((each) => each.getBoundingClientRect().right)),
  };
  for (const each of all("details")) each.open = true;
  const search = document.getElementById("text");
  search.value = "Voice-Service alarm";
  search.dispatchEvent(new Event("input"));
  seen.found = all("[data-of=types] [data-words]").filter((each) => !each.hidden).map((each) => each.id);
  seen.counted = count("types");
  location.hash = "participant-family-app";
  return seen;
})()"""


def test_the_catalogue_finds_types(browser: Page, tmp_path: Path) -> None:
    schema = {"$id": "https://schemas.example/odd", "examples": [{"text": HOSTILE}], "title": HOSTILE}
    odd = {"description": HOSTILE, "schemas": [schema]}
    contract = with_changes(load_contract(), {f"event_types/{LONG_TYPE}": odd})
    (tmp_path / "page.html").write_text(catalogue(contract))
    browser.resize(PHONE)
    browser.open(f"{(tmp_path / 'page.html').as_uri()}#type-org.eventplane.activity.motion.v1")
    browser.wait_for("document.body.dataset.ready === 'yes'")
    assert browser.run(FITS)
    seen = browser.run(USE_CATALOGUE)
    browser.wait_for("!document.getElementById('participant-family-app').hidden")
    assert browser.run(FITS), "open details are too wide"
    assert browser.run("document.title") == f"Event catalogue: {contract.name}"
    assert seen["right"] <= PHONE
    parts = (contract.event_types, contract.participants, contract.routes)
    assert seen["counts"] == [str(len(each)) for each in parts]
    assert seen["boxes"] == len(contract.participants)
    # A link shows who receives a type, by which routes, on which condition.
    assert seen["open"] is True
    for text in ("family-app", 'not subject ends with "/bedroom"', '"state": "moved"'):
        assert text in seen["text"]
    assert seen["found"] == ["type-org.eventplane.alarm.keyword.v1"]
    assert seen["counted"] == f"1 of {len(contract.event_types)}"


@pytest.fixture
def plane() -> FakePlane:
    return FakePlane()


@pytest.fixture
def page(plane: FakePlane, browser: Page) -> Iterator[Page]:
    """The control room on a phone."""
    with ControlRoom(plane) as room:
        browser.resize(PHONE)
        browser.open(room.url)
        browser.wait_for("document.body.dataset.ready")
        yield browser
        assert browser.problems == []
        browser.open("about:blank")


def counter(name: str) -> str:
    return f"Number(document.querySelector('[data-counter={name}]').textContent)"


def test_an_alarm_is_drawn_and_listed_with_where_it_went_and_why(page: Page) -> None:
    page.run("document.getElementById('send').click()")
    page.wait_for("document.querySelector('tr.arrived')")
    text = page.run("document.querySelector('tr.arrived').innerText")
    assert "org.eventplane.alarm.keyword.v1" in text
    assert "by everything-to-cloud → alarms-to-alarm-centre" in text
    page.run("document.querySelector('tr.arrived li:nth-child(2) summary').click()")
    assert 'type starts with "org.eventplane.alarm."' in page.run(
        "document.querySelector('tr.arrived').innerText"
    )
    page.run("document.getElementById('send').click()")
    page.wait_for("document.querySelectorAll('tr.arrived').length === 2")
    assert page.run("document.querySelectorAll('tr.arrived details[open]').length") == 1
    page.wait_for(f"{counter('received')} === 6 && {counter('sent')} === 2 && {counter('lost')} === 0")
    page.wait_for("document.getElementById('said').textContent === 'Event alarm-2 is sent.'")
    assert "2 passed" in page.run("document.querySelector('[data-stage=inboxes]').textContent")
    assert page.run("document.querySelector('[data-latency=p50_ms]').textContent").endswith(" ms")
    assert page.run("document.getElementById('lines').innerText").endswith("eventplane send event.json")
    assert page.run(FITS)


@pytest.mark.parametrize("fault", [RoomFault.NETWORK, RoomFault.FORWARDER])
def test_a_button_keeps_the_focus_and_strikes_once(page: Page, plane: FakePlane, fault: RoomFault) -> None:
    button = f"document.querySelector('[data-fault={fault.value}]')"
    page.run(f"{button}.focus()")
    page.press("Enter")
    page.wait_for(f"{button}.dataset.on === 'yes'")
    page.press("Enter")
    if page.run(f"{button}.ariaDisabled") == "true":
        plane.heal(fault)
    page.wait_for(f"{button}.dataset.on === 'no'")
    assert plane.asked == [("strike", fault), ("heal", fault)]
    assert page.run(f"document.activeElement === {button}")


def test_a_row_that_changes_stays_open_and_keeps_the_focus(page: Page, plane: FakePlane) -> None:
    plane.strike(RoomFault.ROUTER)
    plane.send_alarm()
    page.wait_for("document.querySelector('tr.open summary')")
    page.run("document.querySelectorAll('tr.open summary')[1].focus()")
    page.press("Enter")
    of = page.run("document.activeElement.dataset.of")
    plane.heal(RoomFault.ROUTER)
    page.wait_for("document.querySelector('tr.arrived')")
    assert page.run("document.activeElement.dataset.of") == of
    assert page.run("document.activeElement.parentElement.open") is True


def test_any_declared_event_is_sent_as_it_is_written(page: Page, plane: FakePlane) -> None:
    page.wait_for("document.getElementById('offer').length > 5")
    chosen = "[...document.getElementById('offer').options].find((each) => each.value.startsWith('carers'))"
    page.run(f"{chosen}.selected = true; document.getElementById('offer').dispatchEvent(new Event('change'))")
    text = "document.getElementById('event')"
    assert page.run(f"JSON.parse({text}.value).todevice") == "home-1"
    page.run(f"{text}.value = {text}.value.replace('{{', '{{\"id\": \"mine\",')")
    page.run("document.getElementById('send').focus()")
    page.press("Enter")
    page.wait_for("document.getElementById('said').textContent === 'Event mine is sent.'")
    assert [(each.id, each.source) for each in plane.tally.last()] == [("mine", "/carers")]
    for broken, problem in (
        ("{", "Expecting property name"),
        ("[]", "choose one above"),
        ("{}", "is required"),
    ):
        page.run(f"{text}.value = '{broken}'; document.getElementById('send').click()")
        page.wait_for(f"document.getElementById('said').textContent.includes('{problem}')")
    assert len(plane.tally.last()) == 1
    page.problems.clear()


def test_inboxes_are_read_on_request(page: Page, plane: FakePlane) -> None:
    button = "document.querySelector('[data-reader=family-app]')"
    page.wait_for(button)
    page.run(f"{button}.focus()")
    for pressed in ("true", "false"):
        page.press("Enter")
        page.wait_for(f"{button}.getAttribute('aria-pressed') === '{pressed}'")
    assert plane.asked == [("read", "family-app"), ("left", "family-app")]
    assert page.run(f"document.activeElement === {button}")


LETTERS = {
    "queues": [
        {
            "title": "desk.inbox",
            "name": "desk-dlq",
            "waiting": 2,
            "hidden": 1,
            "looked": 2,
            "reasons": {"odd": 2},
        },
        {"title": "ops.inbox", "name": "ops", "waiting": 1, "hidden": 0, "looked": None, "reasons": {}},
        {"title": "empty.inbox", "name": "empty", "waiting": 0, "hidden": 0, "looked": None, "reasons": {}},
    ]
}


def test_questions_are_answered_by_commands(page: Page, plane: FakePlane) -> None:
    plane.answers = {
        "audit": "proven",
        "trace": HOSTILE,
        "letters": f"a note\n{json.dumps(LETTERS, indent=2)}\n",
        "redrive": "2 moved",
    }
    answer = "document.getElementById('answer').innerText"
    page.run("document.querySelector('[data-ask=audit]').click()")
    page.wait_for(f"{answer}.includes('$ eventplane audit run all') && {answer}.includes('proven')")
    plane.send_alarm()
    page.wait_for("document.querySelector('#events button')")
    page.run("document.querySelector('#events button').focus()")
    page.press("Enter")
    page.wait_for(f"{answer}.includes({json.dumps(HOSTILE)})")
    assert page.run("document.title") == "Control room"
    page.run("document.querySelector('[data-ask=letters]').click()")
    page.wait_for(f"{answer}.includes('desk.inbox 2 waiting, 1 being read: odd 2')")
    assert "a note; 1 of 3 queues are empty" in page.run(answer)
    assert page.run(FITS)
    assert page.violations() == []
    page.run("document.querySelector('#answer [aria-label=\"redrive those of desk.inbox\"]').click()")
    page.wait_for(f"{answer}.includes('2 moved')")
    page.run("document.querySelector('[data-ask=letters]').click()")
    page.wait_for(f"{answer}.includes('ops.inbox')")
    page.run("document.querySelector('#answer [aria-label=\"redrive those of ops.inbox\"]').click()")
    page.wait_for(f"{answer}.includes('the emulated cloud has ended; see its log')")
    assert [each for each in plane.asked if each[0] != "letters"] == [
        ("audit", []),
        ("trace", ["/homes/home-1/voice-service", "alarm-1"]),
        ("redrive", ["desk.inbox"]),
        ("redrive-letters", []),
    ]
    page.problems.clear()


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
    assert page.run(FITS)
