"""`eventplane send` in a home with a real Mosquitto and forwarder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.integration.edge.conftest import CloudBroker, Home, wait_for

ROOT = Path(__file__).parents[3]


def test_an_alarm_of_one_s_own_is_stored_and_goes_to_the_cloud(
    home: Home, cloud: CloudBroker, tmp_path: Path
) -> None:
    event = tmp_path / "event.yaml"
    event.write_text(
        "specversion: '1.0'\nid: mine\nsource: /desk\ntype: org.eventplane.alarm.keyword.v1\n"
        "time: 2026-03-01T14:00:00Z\ndata: {room: kitchen, keyword: help}\n"
    )
    words = ["--json", "send", str(event), "--broker", f"mqtt://127.0.0.1:{home.broker.port}"]
    done = subprocess.run(
        [sys.executable, "-m", "eventplane", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"id": "mine", "source": "/desk", "sender": "voice-service"}
    wait_for(lambda: cloud.has({"mine"}))
