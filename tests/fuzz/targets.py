"""One function for each reader: it returns what became of the bytes, and raises what nobody foresaw.

What became of them is `accepted` or the name of the refusal. A refusal that does not say what is wrong is
none: that is checked here, too.
"""

import contextlib
import gzip
import io
import json
import shutil
import tempfile
from collections.abc import Callable
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Final, Literal

from contract.loader import CONTRACT_FILE, load_contract
from edge.errors import SpoolError
from edge.spool import BEFORE_EVERYTHING, StoredEvent
from edge.spool.store import Spool
from edge.system import SYSTEM
from eventplane.batch import unpack
from eventplane.cesql import CesqlParseError, lint, mixed_logic, parse, write
from eventplane.contract import ContractError, load_compiled
from eventplane.device_reports import DISCARDED, KEY_BYTES, MANIFEST, STARTED, forwarder_source
from eventplane.envelope import Envelope, parse_event, parse_strictly
from eventplane.errors import EnvelopeError, EventPlaneError
from eventplane.ingest import parse_frame
from eventplane.ledger import LEDGER, TAP, tap_records, to_line
from eventplane.other_json import use_json, use_standard_json
from eventplane.receipts import ReceiptError, read_receipts
from eventplane_mqtt.codec import Decoder, ProtocolError
from eventplane_mqtt.endpoint import MAX_PACKET_BYTES, DiscoveryError, Endpoint
from eventplane_mqtt.mailbox import LinkName
from eventplane_mqtt.profile import read_profile
from eventplane_mqtt.session import Session
from glue_jobs.delivery_audit.device import MAX_FINDINGS, DeviceJudgement, judge_device
from lab.benchmarks import workload
from operations.archive import Days
from operations.archived_letters import archived_letters
from operations.search import in_tap
from parts.discovery.broker import choose
from tests.scratch import SCRATCH
from tests.unit.glue_jobs.home import SCOPE, Event, Home, steps

Target = Callable[[bytes], str]

_MOST_STARTS: Final = 3
_DAY: Final = date(2026, 1, 1)

ACCEPTED: Final = "accepted"
"""What is returned of bytes that were read."""


class EmptyRefusalError(Exception):
    """A refusal has a name or a text that says nothing."""


def _refused(error: EventPlaneError, reason: str | None = None) -> str:
    """The refusal's name. Raises `EmptyRefusalError`."""
    name = type(error).__name__ if reason is None else f"{type(error).__name__}: {reason}"
    if not str(error).strip() or reason == "":
        raise EmptyRefusalError(name) from error
    return name


def envelope(raw: bytes) -> str:
    """A single event; one that is read must survive being stamped and read again."""
    try:
        event = parse_event(raw)
    except EnvelopeError as error:
        return _refused(error, error.reason)
    if parse_event(event.json) != event:
        raise AssertionError("an event is not what its own text says")
    return ACCEPTED


def batch(raw: bytes) -> str:
    """A device's payload."""
    try:
        items = list(unpack(raw))
    except EnvelopeError as error:
        return _refused(error, error.reason)
    for item in items:
        if not isinstance(item, Envelope):
            return "item " + _refused(item[1], item[1].reason)
    return ACCEPTED


def outcome(read: Callable[[bytes | str], Envelope], raw: bytes | str) -> tuple[object, object]:
    """The event that `read` makes of `raw`, and its attributes' types (1 equals True), or its refusal."""
    try:
        event = read(raw)
    except EnvelopeError as error:
        return error.reason, error.detail
    return event, [type(value) for value in event.attributes.values()]


def fast_reader(raw: bytes) -> str:
    """The fast reader against the strict one: as one event, and as what is in a batch."""
    learn_forms()
    strict = outcome(parse_strictly, raw)
    for use in _FAST_READERS:
        use()
        if outcome(parse_event, raw) != strict:
            raise AssertionError("the fast reader and the strict one differ")
        with contextlib.suppress(EnvelopeError):
            for item in unpack(b"[" + raw + b"]"):
                if isinstance(item, Envelope) and outcome(parse_strictly, item.json)[0] != item:
                    raise AssertionError("the fast reader of batches and the strict one differ")
    use_standard_json()
    return ACCEPTED if isinstance(strict[0], Envelope) else f"EnvelopeError: {strict[0]}"


@cache
def learn_forms() -> None:
    """Let the fast reader see so many events of the seeds' kinds that it remembers them."""
    for seed in (workload.event(1), *GOOD_EVENTS):
        for _ in range(MANY_EVENTS):
            parse_event(seed)


MANY_EVENTS: Final = 1_000
"""More than the fast reader sees before it remembers the form of an event."""

GOOD_EVENTS: Final = (
    b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"value":1.5}}',
    b'{"specversion":"1.0","id":"1","source":"/s","type":"t","severitynumber":9,"hops":-1,"x":"","tracestate":""}',
)


_FAST_READERS: Final[list[Callable[[], None]]] = [use_standard_json]
with contextlib.suppress(ImportError):
    import orjson

    _FAST_READERS.append(partial(use_json, orjson.loads, orjson.dumps))


def cesql(raw: bytes) -> str:
    """An expression: parsed, written, linted, and evaluated over an event that has everything."""
    text = raw.decode("utf-8", "replace")
    try:
        expression = parse(text)
    except CesqlParseError as error:
        return _refused(error)
    attributes = {"id": "1", "type": "t", "source": "/s", "b": True, "i": -(2**31), "s": "10"}
    written = parse(write(expression.tree))
    before, after = expression.evaluate(attributes), written.evaluate(attributes)
    if (before.value, len(before.errors)) != (after.value, len(after.errors)) or mixed_logic(written):
        raise AssertionError(f"{text!r} and what is written of it differ")
    if expression.matches(attributes) is not before.passes:
        raise AssertionError(f"{text!r}: the compiled filter and the evaluation differ")
    for each in mixed_logic(expression):
        parse(each.remedy.removeprefix("write ").split(" (from left")[0])
    lint(expression)
    return ACCEPTED


def contract(raw: bytes) -> str:
    """A compiled contract, as devices and functions read it."""
    try:
        loaded = load_compiled(raw, "fuzz")
    except ContractError as error:
        return _refused(error)
    if load_compiled(loaded.canonical, "again").version != loaded.version:
        raise AssertionError("a contract is not what its own canonical form says")
    return ACCEPTED


def contract_file(raw: bytes) -> str:
    """A contract as people write it."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        path = Path(folder) / "contract.yaml"
        (path.parent / "schemas").symlink_to(CONTRACT_FILE.parent.resolve() / "schemas")
        path.write_bytes(raw)
        try:
            load_contract(path)
        except ContractError as error:
            return _refused(error)
    return ACCEPTED


def receipts(raw: bytes) -> str:
    """What a service or the forwarder confirms."""
    try:
        read_receipts(raw)
    except ReceiptError as error:
        return _refused(error)
    return ACCEPTED


def frame(raw: bytes) -> str:
    """What the IoT rule hands over, to router and archive writer."""
    try:
        read = parse_frame(raw.decode("utf-8", "surrogatepass" if b"\xed" in raw else "replace"))
    except EnvelopeError as error:
        return _refused(error, error.reason)
    except UnicodeDecodeError:
        return "not text: SQS has no such message"
    for line in map(to_line, tap_records(read, "message", 0)):
        line.encode("utf-8")
    return ACCEPTED


def mqtt(raw: bytes) -> str:
    """What a broker sends: the first byte chooses the version and how it comes in pieces."""
    version, size = (5 if raw[:1] < b"\x80" else 4), 1 + (raw[0] % 7 if raw else 0)
    protocol: Literal["3.1.1", "5"] = "5" if version == 5 else "3.1.1"
    endpoint = Endpoint("h", 1, "c", False, 30, 10.0, ("t",), protocol=protocol, owner=1)
    session = Session(endpoint, LinkName.LOCAL, 1)
    session.start(0.0)
    decoder = Decoder(version, MAX_PACKET_BYTES, endpoint.owner)
    refusal = ACCEPTED
    try:
        for at in range(1, len(raw), size):
            list(decoder.feed(raw[at : at + size]))
    except ProtocolError as error:
        refusal = _refused(error)
    for at in range(1, len(raw), size):
        session.receive(raw[at : at + size], 0.0)
    session.take_messages()
    session.take_bytes(1 << 20)
    if refusal is not ACCEPTED and session.ended is None:
        raise AssertionError("a connection goes on after what is no MQTT")
    return refusal if session.ended is None or refusal is not ACCEPTED else "ended with a reason"


@cache
def good_spool() -> bytes:
    """A spool's file with a few events."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        path = Path(folder) / "spool.db"
        with Spool(path, SYSTEM) as spool:
            for number in range(1, 6):
                text = json.dumps({"id": str(number)})
                spool.commit([StoredEvent(number, 1, text, {"d": None}, bytes(KEY_BYTES))], uptime_ms=number)
        return path.read_bytes()


def spool(raw: bytes) -> str:
    """A spool's file: the input says what is written over a good one, or is the file (first byte odd)."""
    file = bytearray(good_spool())
    if raw[:1] and raw[0] % 2:
        file = bytearray(raw[1:])
    else:
        for at in range(1, len(raw) - 4, 5):
            place = int.from_bytes(raw[at : at + 3], "big") % len(file)
            file[place : place + 2] = raw[at + 3 : at + 5]
    folder = Path(tempfile.mkdtemp(dir=SCRATCH))
    try:
        path = folder / "spool.db"
        path.write_bytes(file)
        try:
            _work_with(path)
        except SpoolError as error:
            if "its format is" in str(error):
                return _refused(error, "a newer format")  # never touched, whatever else is wrong
            # The forwarder ends with that and is started again: it must not be the same every time.
            for _ in range(_MOST_STARTS):
                with contextlib.suppress(SpoolError):
                    _work_with(path)
                    return "opened again after " + _refused(error)
            raise
        return ACCEPTED if not list(folder.glob("*.damaged-*")) else "recovered"
    finally:
        shutil.rmtree(folder)


def _work_with(path: Path) -> None:
    with Spool(path, SYSTEM) as opened:
        waiting = opened.read("d", 1, BEFORE_EVERYTHING, 100)
        opened.loss_reports()
        opened.recent_keys(10)
        done = [each.delivery for each in waiting[:1]]
        arrival = StoredEvent(opened.next_sequence, 1, "{}", {"d": None}, bytes(KEY_BYTES))
        opened.commit([arrival], done, uptime_ms=9)


def profile(raw: bytes) -> str:
    """Mosquitto's profile: a form feed, then a file that it includes. It leads somewhere, or says why not."""
    text, _, inner = raw.decode("utf-8", "replace").partition("\f")
    try:
        listeners = read_profile(text, "fuzz", lambda folder: [(folder, inner)])
        address = choose(listeners, has_login="login" in text)
    except DiscoveryError as error:
        return _refused(error)
    if not address.host or not 0 <= address.port <= 65_535 or (not address.port and address.host[0] != "/"):
        raise AssertionError(f"{address} is no address")
    return ACCEPTED


class _TwoObjects:
    """An archive with one object in the ledger and one in the tap."""

    def __init__(self, ledger: bytes, tap: bytes) -> None:
        self._contents = {LEDGER: ledger, TAP: tap}

    def names(self, prefix: str) -> list[str]:
        return [f"{prefix}hour=00/1.json.gz"]

    def open(self, name: str) -> io.BytesIO:
        return io.BytesIO(self._contents[name.partition("/")[0]])


def archive(raw: bytes) -> str:
    """Rows of the archive, as the operator's commands read them: the ledger's, a form feed, the tap's.

    With an odd first byte they are the packed files.
    """
    ledger, _, tap = raw[1:].partition(b"\f")
    if not raw[:1] or raw[0] % 2 == 0:
        ledger, tap = gzip.compress(ledger, 1), gzip.compress(tap, 1)
    days = Days(_TwoObjects(ledger, tap), _DAY, _DAY)
    letters = list(archived_letters(days, "device.outbox", "device.inbox"))
    list(days.records(TAP, in_tap(("/homes/1/s", "1"))))
    return "damaged" if days.damaged else ACCEPTED if letters else "no letters"


DEVICE_REPORTS: Final = (STARTED, DISCARDED, MANIFEST)


def device(raw: bytes) -> str:
    """Reports of a device, parted by form feeds, among good ones; a byte before each is its type and number.

    It is judged in steps linear in what it says, to findings that are bounded and do not depend on the order.
    """
    home = Home().live("start, send 2, lose 1, manifest, wait 1")
    for place, report in enumerate(raw.split(b"\f")):
        at = report[0] if report else 0
        text, type = report[1:].decode("utf-8", "replace"), DEVICE_REPORTS[at % len(DEVICE_REPORTS)]
        number, source = at % 64, forwarder_source(home.client_id)
        row = (home.at_ms, "tap/1", type, source, f"r{place}", home.epoch, number, text)
        home.events.append(Event(home.client_id, home.epoch, home.at_ms, number, ("d", source, row[4]), row))
    rows = home.live("wait 1, manifest").gathered()
    judged: list[DeviceJudgement] = []
    taken = steps(lambda: judged.append(judge_device(rows, SCOPE)))
    if taken > FREE_STEPS + STEPS_A_BYTE * len(raw):
        raise AssertionError(f"{taken} steps for {len(raw)} bytes")
    other = [each._replace(reports=each.reports[::-1]) for each in rows.hours[::-1]]
    if judge_device(rows._replace(hours=other), SCOPE) != judged[0]:
        raise AssertionError("a judgement depends on the order of what came at once")
    findings = judged[0].findings
    if len(findings) > MAX_FINDINGS or any("could not be judged" in str(each.detail) for each in findings):
        raise AssertionError(f"{len(findings)} findings, {findings[:1]}")
    if any(isinstance(each, int) and each.bit_length() > 63 for row in judged[0].days for each in row):
        raise AssertionError("a sum has more than 64 bits")
    kinds = {each.kind for each in findings} & {"not_understood", "contradiction", "manifest_mismatch"}
    return min(kinds, default=ACCEPTED)


FREE_STEPS: Final = 20_000
STEPS_A_BYTE: Final = 60
"""Steps that a judgement takes at most: for what is good, and for each byte of other reports."""


TARGETS: Final[dict[str, Target]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        envelope,
        batch,
        fast_reader,
        cesql,
        contract,
        contract_file,
        receipts,
        frame,
        mqtt,
        spool,
        archive,
        profile,
        device,
    )
}
