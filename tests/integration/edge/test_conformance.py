"""The conformance kit: the forwarder and both examples keep every rule, and each broken rule is found."""

import json
import re
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from contract.loader import load_contract
from eventplane_mqtt import Endpoint
from lab.mosquitto import Broker
from lab.process import Supervisor
from lab.tools.docs_site import with_tables
from operations.command_line import main
from operations.conformance.kit import Bench, RuleBrokenError
from operations.conformance.rules import OF_FORWARDERS, OF_PROGRAMS, PAGE
from tests.integration.access import start_guarded
from tests.integration.edge.conftest import Home, RecordingCloud, wait_for

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "lab" / "examples" / "receipts"
NODE = (EXAMPLES / "publish.js").read_text()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECEIPT_MS", "200")


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[dict[str, object]]]:
    """The exit status of the command, and its results."""
    status = main(["conformance", "--json", *map(str, words)])
    return status, [json.loads(each) for each in capsys.readouterr().out.splitlines()]


def broken(results: list[dict[str, object]]) -> list[object]:
    return [each["problem"] for each in results if not each["passed"]]


def test_the_page_has_each_rule() -> None:
    page = with_tables((ROOT / PAGE).read_text(), PAGE)
    numbers = [int(each) for each in re.findall(r"(?m)^\| (\d+) \|", page)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {each.paragraph for each in (*OF_PROGRAMS, *OF_FORWARDERS)} == {*numbers} - {15}


def test_the_forwarder_keeps_every_rule(
    home: Home, cloud: RecordingCloud, capsys: pytest.CaptureFixture[str]
) -> None:
    status, results = run(capsys, f"127.0.0.1:{home.broker.port}", "--as", "climate-service")
    assert (status, broken(results), len(results)) == (0, [], len(OF_FORWARDERS))
    wait_for(lambda: len({each.id for each in cloud.events if each.source == "/conformance"}) == 51)


def test_without_a_forwarder_no_rule_is_kept(
    shared_broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    status, results = run(capsys, f"127.0.0.1:{shared_broker.port}", "--timeout", "0.2")
    assert (status, len(broken(results))) == (1, len(OF_FORWARDERS))


def test_the_example_in_node_conforms(shared_broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    words = "--run", "node", EXAMPLES / "publish.js"
    status, results = run(capsys, f"127.0.0.1:{shared_broker.port}", *words)
    assert (status, broken(results), len(results)) == (0, [], len(OF_PROGRAMS))


def test_the_example_in_c_conforms(
    shared_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror")
    subprocess.run(["cc", *strict, "-o", tmp_path / "publish", EXAMPLES / "publish.c"], check=True)
    words = "--as", "display", "--run", tmp_path / "publish"
    status, results = run(capsys, f"127.0.0.1:{shared_broker.port}", *words)
    assert (status, broken(results), len(results)) == (0, [], len(OF_PROGRAMS))


NOW = 'console.log("stored " + createHash("sha256").update(each.payload).digest("hex"));'
REVERSED = "waiting.values()) send(each); // 7", "[...waiting.values()].reverse()) send(each);"
FAULTS = {
    "publishes before it subscribes": (
        1, "socket.write(subscribe()); // 1",
        "isUp = true; for (const each of waiting.values()) send(each); socket.write(subscribe());",
    ),
    "takes a refusal for consent": (1, "if (body[2] >= 128) return", "if (body[2] < 0) return"),
    "subscribes at QoS 0": (1, "text(receipts), Buffer.from([1])", "text(receipts), Buffer.from([0])"),
    "trusts a session that was kept": (
        1, "Buffer.from([4, 2])", "Buffer.from([4, 0])", "socket.write(subscribe()); // 1",
        "isUp = body[0] & 1; waiting.forEach((each) => send(each)); if (!isUp) socket.write(subscribe());",
    ),
    "knows short packets": (2, "head.push(", "if (head.length > 2) process.exit(3); head.push("),
    "names no digest": (2, "`stored ${receipt.digest}`", "`stored `"),
    "retains": (2, "packet(0x32,", "packet(0x33,"),
    "writes the JSON again": (2, "Buffer.from(line)", "Buffer.from(JSON.stringify(JSON.parse(line)))"),
    "takes what is sent for stored": (3, "// 2", f"{NOW} // 2"),
    "never repeats": (4, "each.timer = setTimeout(() => send(each), each.wait); // 4", ""),
    "dies of nonsense": (5, "return; // 5", "process.exit(1);"),
    "knows one receipt a message": (5, "Array.isArray(found) ? found : []", "found.slice(0, 1)"),
    "takes few receipts": (5, "takeReceipts(payload);", "if (payload.length < 4096) takeReceipts(payload);"),
    "needs a null": (5, "if (!each) continue;", 'if (!each || !("refused" in receipt)) continue;'),
    "reports twice": (5, "waiting.delete(receipt.digest);", "setTimeout(() => waiting.clear(), 500);"),
    "overtakes": (6, *REVERSED),
    "forgets with the connection": (7, "send(each); // 7", "clearTimeout(each.timer);"),
    "repeats in another order": (7, *REVERSED),
    "gives up": (8, "setTimeout(open, RECONNECT_MS); // 8", "process.exit(1);"),
    "repeats what is refused": (9, 'receipt.refused === "spool_full"', "receipt.refused"),
    "knows one reason": (
        9, 'receipt.refused === "spool_full"', 'receipt.refused && receipt.refused !== "not_json"',
    ),
    "is in a hurry": (10, "each.timer = setTimeout(() => send(each), each.wait); // 10", "send(each);"),
    "floods": (10, "setTimeout(() => send(each), each.wait); // 4", "setImmediate(() => send(each));"),
    "drops what found no room": (10, 'receipt.refused === "spool_full"', "false"),
}  # fmt: skip
"""Of each fault the rule that it breaks, and the changes of the example that make it."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_rule_is_found(shared_broker: Broker, tmp_path: Path, fault: str) -> None:
    paragraph, *changes = FAULTS[fault]
    program = NODE
    for text, replacement in zip(changes[::2], changes[1::2], strict=True):
        assert str(text) in program
        program = program.replace(str(text), str(replacement), 1)
    (tmp_path / "faulty.js").write_text(program)
    (rule,) = [each for each in OF_PROGRAMS if each.paragraph == paragraph]
    endpoint = Endpoint("127.0.0.1", shared_broker.port, f"kit-{paragraph}", True, 30, 10.0)
    service = fault.replace(" ", "-")
    bench = Bench(["node", str(tmp_path / "faulty.js")], service, endpoint, 4.0)
    with closing(bench), pytest.raises(RuleBrokenError):
        rule.check(bench)


def test_a_forwarder_at_the_broker_is_named(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    words = "--as", "climate-service", "--run", "node", str(EXAMPLES / "publish.js")
    assert main(["conformance", f"127.0.0.1:{home.broker.port}", *words]) == 1
    assert "a forwarder is at this broker" in capsys.readouterr().err


def test_a_broker_that_asks_for_a_password(
    supervisor: Supervisor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guarded = start_guarded(supervisor, "guarded", tmp_path / "guarded", load_contract())
    login = guarded.login("climate-service")
    words = "--username", login.username, "--password-file", login.password_file, "--timeout", "0.2"
    status, results = run(capsys, f"127.0.0.1:{guarded.broker.port}", "--as", "climate-service", *words)
    # It gets in, and nobody answers.
    assert (status, len(results)) == (1, len(OF_FORWARDERS))
    assert main(["conformance", f"127.0.0.1:{guarded.broker.port}", "--timeout", "1"]) == 1
    assert "refuse" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("mqtt://x",), "is no broker"),
        (("x:0x",), "is no broker"),
        (("x", "--username", "me"), "--password-file"),
        (("x", "--run"), "--run names no program"),
        (("x", "--as", "alarm-centre"), "'alarm-centre' is no service on the device"),
    ],
)
def test_wrong_words(
    words: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str], call: Callable[..., int]
) -> None:
    assert call("conformance", *words) == 2
    assert problem in capsys.readouterr().err


@pytest.fixture
def call() -> Callable[..., int]:
    def status(*words: str) -> int:
        try:
            return main(list(words))
        except SystemExit as ended:
            return int(ended.code or 0)

    return status
