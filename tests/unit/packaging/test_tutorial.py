"""docs/tutorials/raspberry-pi.md: its settings, commands, files and event are those of this version."""

import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

import eventplane.__main__
from edge.settings import load_settings
from eventplane.envelope import parse_event
from eventplane.topics import local_topic
from lab.tools.debian_package import NAME, files
from lab.tools.device_image import PACKAGING, ROOT, VERSION
from tests.plane import shipped_contract

PAGE = (ROOT / "docs" / "tutorials" / "raspberry-pi.md").read_text()
TYPED = re.findall(r"^(?:pi|you)\$ (?:sudo )?(.*)$", PAGE, re.MULTILINE)


def typed(start: str) -> list[str]:
    """Return the commands that begin with `start`."""
    return [line for line in TYPED if line.startswith(start)]


@pytest.mark.source("P7")
def test_its_lines_complete_the_settings_of_the_package(tmp_path: Path) -> None:
    block = re.search(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert block is not None
    table = ""
    text = (PACKAGING / "forwarder.toml").read_text()
    for line in block[1].splitlines():
        if line.startswith("["):
            table = line
            text = re.sub(rf"^#?{re.escape(line)}$", line, text, flags=re.MULTILINE)
        elif line:
            head, _, rest = text.partition(f"\n{table}\n") if table else ("", "", text)
            name = line.partition(" = ")[0]
            changed = re.sub(rf"^#?{name} = .*$", line, rest, count=1, flags=re.MULTILINE)
            assert changed != rest, f"{line}: the file has no such line to change"
            text = f"{head}\n{table}\n{changed}" if table else changed
    file = tmp_path / "forwarder.toml"
    file.write_text(text)
    settings = load_settings(file, {})
    assert tomllib.loads(block[1])["thing"] == settings.thing
    paths = [settings.contract, settings.provisioning.claim_certificate, settings.provisioning.claim_key]
    put = " ".join(typed("install"))
    assert [
        path.name for path in paths if path.name not in put or path.parent != Path("/etc/eventplane")
    ] == []


def test_its_event_is_valid_and_its_service_may_send_it() -> None:
    (line,) = typed("mosquitto_pub")
    found = re.fullmatch(r"mosquitto_pub -q 1 -t (\S+) -m '(.*)'", line)
    event = parse_event(found[2])
    service = shipped_contract().participants["health-service"]
    assert found[1] == local_topic("health-service", "outbox")
    assert event.type in (service.sends or ())
    # A router checks an event without `dataschema` against the first schema of its type.
    schema = next(iter(shipped_contract().event_types[event.type].schemas.values()))
    jsonschema.validate(event.data(), schema)
    (trace,) = typed("eventplane trace")
    assert trace.split()[2:4] == [event.source, event.id]


def test_its_commands_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those on the computer; tests/device runs the Pi's."""
    monkeypatch.chdir(ROOT)
    for line in typed("eventplane "):
        commands = [each for each in line.split()[1:3] if re.fullmatch(r"[a-z]+", each)]
        with pytest.raises(SystemExit) as ended:
            eventplane.__main__.main([*commands, "--help"])
        assert ended.value.code == 0, line
    assert f"{NAME}_{VERSION}_all.deb" in PAGE
    assert f"usr/bin/{NAME}" in files(b"")
