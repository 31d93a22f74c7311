"""`python -m lab.benchmarks.audit.values`: values as Spark and core read them; build/bench/audit_values.json.

Events with valid, nearly valid and mutated values go through the archive's reader. Exit status 1 when one
value that the audit judges by is another one than the core reads, or is read where the core refuses.
"""

import gzip
import json
import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from eventplane.archive_layout import TAP_FOLDER
from eventplane.attributes import attribute_text
from eventplane.envelope import parse_event
from eventplane.errors import EnvelopeError
from eventplane.guarantee import asks_best_effort
from eventplane.hops import ROUTER_HOPS
from eventplane.ledger import TapRecord, to_line
from eventplane.names import EPOCH, SENDER_SERVICE, SEQUENCE
from eventplane.values import timestamp_ms, whole_number
from glue_jobs.common.archive import Archive
from glue_jobs.common.attestation import open_key
from glue_jobs.common.hours import Days
from glue_jobs.common.objects import open_output
from glue_jobs.common.session import local_session
from glue_jobs.delivery_audit import rows
from glue_jobs.delivery_audit.event import UNNUMBERED
from glue_jobs.delivery_audit.rules import Window
from lab.benchmarks.results import Benchmark, Figure, none

TEXTS: Final = ("source", "id", "type", EPOCH, "partitionkey", SENDER_SERVICE)
_TIMES: Final = ("recordedtime", "expirytime")
_COLUMNS: Final = (
    *("source", "id", "type", "epoch", "partition", "service"),
    *("recorded_at_ms", "expires_at_ms", "hops", "asks_best_effort", "sequence", "severity"),
)
VALUES: Final = len(_COLUMNS)
"""Values that are compared of each event."""

_JUDGED: Final = (*_TIMES, *_TIMES, SEQUENCE, ROUTER_HOPS, "severitynumber", "deliveryguarantee")
_SHOWN: Final = 20
_OBJECT: Final = 50_000
"""Events in one object of the archive."""

_YEARS: Final = ("0001", "0000", "1969", "1970", "2024", "2026", "9999")
_DAYS: Final = ("02-28", "02-29", "12-31", "06-30", "01-01")
_OFFSETS: Final = ("Z", "Z", "z", "+00:00", "-00:00", "+18:00", "+18:01", "+23:59", "-23:59")
_MARKS: Final = ("", "0", "9", " ", "\n", "\u0663", "-", "+", ".", ":", "Z", "e", "\u00e9", "\U0001f600", "_")


def differences(spark: SparkSession, folder: Path, events: int, seed: int) -> list[tuple[str, Any, Any]]:
    """Return the events that Spark reads otherwise, with the values by the core and by Spark."""
    texts = list(generated(events, seed))
    output = open_output(str(folder))
    for start in range(0, events, _OBJECT):
        lines = (
            to_line(TapRecord(1, 2, "home", "t", "m", at, texts[at], None, None))
            for at in range(start, min(start + _OBJECT, events))
        )
        name = f"tap/date=2026-03-01/hour=00/{start}.json.gz"
        output.write(name, gzip.compress("".join(f"{line}\n" for line in lines).encode(), 1))
    archive = Archive(spark, output)
    part = archive.read(archive.listed(TAP_FOLDER, Days(), open_key(None)), texts=rows.READ_ATTRIBUTES)
    read = rows.tap_rows(part.rows, Window())
    severity = rows.severity(sf.col("texts")).alias("severity")
    severities = part.rows.select(sf.col("index").alias("place"), severity)
    by_spark = {
        row.place: row
        for row in read.join(severities, "place").select("place", *_COLUMNS, "unread", "bad").collect()
    }
    return [
        (text, core, tuple(by_spark[place]))
        for place, text in enumerate(texts)
        if not _agree(core := by_core(text), by_spark[place])
    ]


def by_core(text: str) -> tuple[Any, ...] | None:
    """Return the values as the core reads them, and what cannot be read; None for what is no event."""
    try:
        event = parse_event(text)
    except EnvelopeError:
        return None
    named = event.attributes
    sequence, unread = None, None
    if SEQUENCE in named:
        try:
            sequence = whole_number(named[SEQUENCE], rows.MAX_SEQUENCE)
        except ValueError:
            unread = UNNUMBERED
    return (
        *(attribute_text(named[name]) if name in named else None for name in TEXTS),
        *(timestamp_ms(str(named[name])) if name in named else None for name in _TIMES),
        named.get(ROUTER_HOPS),
        asks_best_effort(event),
        sequence,
        named.get("severitynumber"),
        unread,
    )


def _agree(core: tuple[Any, ...] | None, row: Any) -> bool:
    """Return whether both read the same; of what is no event Spark has to say that it cannot read it."""
    if core is None:
        return row.unread is not None or row.bad is not None
    return row.bad is None and core == tuple(row[name] for name in (*_COLUMNS, "unread"))


def generated(events: int, seed: int) -> Iterator[str]:
    """Yield texts of events, in which at most one value is none that the core accepts."""
    random = Random(seed)
    for _ in range(events):
        members = {
            "specversion": '"1.0"',
            "source": f'"/{random.randrange(10**6)}"',
            "id": _text(random),
            "type": _text(random),
            EPOCH: random.choice([_text(random), str(_whole(random) % 2**31), "true", "null", "-0"]),
            "partitionkey": _text(random),
            SENDER_SERVICE: _text(random),
            "recordedtime": json.dumps(_time(random)),
            "expirytime": json.dumps(_time(random)),
            ROUTER_HOPS: str(random.choice([0, 1, 16, 17, 2**31 - 1, random.randrange(2**31)])),
            SEQUENCE: json.dumps(f"{_whole(random):012d}"),
            "severitynumber": str(random.randint(1, 24)),
            "deliveryguarantee": '"best_effort"',
        }
        for name in random.sample([*members][4:], random.randrange(9)):
            del members[name]
        if random.random() < 0.7:
            name = random.choice(_JUDGED)
            members[name] = _nearly(random, name)
        space = random.choice(["", "", " ", "\n\t"])
        yield (
            "{" + ",".join(f'{space}"{name}":{space}{value}' for name, value in members.items()) + space + "}"
        )


def _nearly(random: Random, name: str) -> str:
    """Return JSON that may be a value of the attribute, or nearly is one."""
    if random.random() < 0.1:
        return random.choice(["null", "true", "1.5", "1e3", "[]", "{}", '""', "-1", '{"a":1}', "1e400"])
    if name in _TIMES:
        return json.dumps(_mutated(random, _time(random)), ensure_ascii=random.random() < 0.5)
    if name == "deliveryguarantee":
        return json.dumps(random.choice(["best_effort", "Best_effort", "at_least_once", "best_effort "]))
    number = _whole(random)
    if name != SEQUENCE:
        small = str(number % 40), "-0", "0", "25", "1E1"
        return random.choice([*small, str(number), f"-{number}", f"{number}.0"])
    if random.random() < 0.2:
        return str(number % 2**31)
    padded = f"{number:012d}", f"{number:018d}", f"{number:019d}"
    forms = (*padded, str(number), f"+{number}", f"{number}.0", f" {number}", f"{number} ", f"-{number}")
    text = random.choice([*forms, "0x1f", "1e3", "\u0661\u0662"])
    return json.dumps(_mutated(random, text) if random.random() < 0.3 else text)


def _whole(random: Random) -> int:
    edges = 0, 1, 2**31 - 1, 2**31, 2**53, 10**12, 10**18 - 1, 10**18, 2**63 - 1, 2**63, 10**30
    return random.choice([random.choice(edges), random.randrange(10 ** random.randrange(1, 20))])


def _text(random: Random) -> str:
    """Return a JSON String that is not empty, with escapes or without."""
    characters = 'ab /"\\\u00e9\u0130\u0661\u2003\u6c34\U0001f600'
    text = "x" + "".join(random.choices(characters, k=random.randrange(6)))
    return json.dumps(text, ensure_ascii=random.random() < 0.5)


def _time(random: Random) -> str:
    """Return a time, almost always an RFC 3339 timestamp with edges of years, months, days and offsets."""
    year = random.choice([*_YEARS, f"{random.randrange(10_000):04}"])
    day = random.choice([*_DAYS, f"{random.randint(1, 12):02}-{random.randint(1, 31):02}"])
    hour, minute = random.choice(["00", "12", "23"]), random.choice(["00", "30", "59"])
    second = random.choice(["00", "59", "60", f"{random.randrange(60):02}"])
    fraction = random.choice(
        ["", ".0", ".9", ".987", ".9995", ".123456789012", f".{random.randrange(10**6)}"]
    )
    offset = random.choice([*_OFFSETS, f"+{random.randrange(24):02}:59"])
    return f"{year}-{day}{random.choice('TTt')}{hour}:{minute}:{second}{fraction}{offset}"


def _mutated(random: Random, text: str) -> str:
    """Return the text with one character more, less or changed; often it is still valid."""
    at = random.randrange(len(text) + 1)
    return text[:at] + random.choice(_MARKS) + text[at + random.randrange(2) :]


def compared(options: Namespace) -> list[Figure]:
    """Compare the values of generated events."""
    folder = Path(tempfile.mkdtemp(prefix="audit-values-"))
    events = -(-options.values // VALUES)
    with local_session() as spark:
        wrong: Sequence[Any] = differences(spark, folder, events, options.seed)
    shutil.rmtree(folder)
    for each in wrong[:_SHOWN]:
        print(each, file=sys.stderr)
    return [
        Figure("values", float(events * VALUES), "values"),
        none("differences", len(wrong), "events"),
    ]


BENCHMARK = Benchmark(
    "audit_values",
    {"values": compared},
    "counts, not times",
    {"--values": {"type": int, "default": 1_000_000}, "--seed": {"type": int, "default": 1}},
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
