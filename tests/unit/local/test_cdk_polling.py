"""The CDK's command line asks the emulated cloud more often than every 5 s."""

import os
import re
import subprocess

from local.deploy import CDK, POLLING

SCRIPT = """
const began = Date.now();
setTimeout(() => { console.log("poll", Date.now() - began); process.exit(0); }, 5000);
setTimeout((word) => console.log(word, Date.now() - began), 20, "other");
"""


def test_only_the_command_line_s_poll_is_shortened() -> None:
    environment = {**os.environ, "NODE_OPTIONS": f'--require "{POLLING}"'}
    run = subprocess.run(["node", "-e", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    other, poll = run.stdout.splitlines()
    assert other.startswith("other ")
    assert 200 <= int(poll.split()[1]) < 4_000


def test_the_command_line_still_polls_by_that_interval() -> None:
    code = (CDK.resolve().parent.parent / "lib" / "index.js").read_text()
    assert re.search(r"async function waitFor\(valueProvider, timeout = 5e3\)", code)
