"""Tamper evidence: what an audit sees of objects that changed since the last one."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.archive_layout import report_name, verdict_name
from glue_jobs.delivery_audit.chain import (
    Attested,
    Chain,
    Edit,
    Inventory,
    Past,
    compare,
    inventory_name,
)
from glue_jobs.delivery_audit.verdict import digest_of, revision, revision_of, verdict_event
from tests.unit.glue_jobs.test_verdict import TOTALS, document

LISTED_MS = 1_772_452_800_000 + 3_600_000
"""2026-03-02T13:00Z, a day after the hours of these tests."""
HOUR = "date=2026-03-01/hour=12"
A, B, LATER = (f"tap/{HOUR}/{name}.json.gz" for name in ("a", "b", "later"))
OPEN = "tap/date=2026-03-02/hour=13/now.json.gz"
CONTRACT = "contracts/v1.json"
PARQUET = f"compacted/tap/{HOUR}/run=1/part-0.zstd.parquet"
ALL: dict[str, tuple[str | None, str | None]] = {"tap": (None, None)}


def inventory(listed_at_ms: int = LISTED_MS, days: Any = None, **disputed: str) -> Any:
    """Make an inventory by `inventory()(objects)`."""

    def of(objects: dict[str, str]) -> Inventory:
        return Inventory(listed_at_ms, days or ALL, objects, disputed)

    return of


BEFORE = inventory()({A: "etag:1", B: "etag:2", OPEN: "etag:3", CONTRACT: "etag:4"})


NOTHING = Attested()
SINCE = "the audit of yesterday"


def changes(now: dict[str, str], attested: Attested = NOTHING, before: Inventory = BEFORE) -> dict[str, str]:
    _, found = compare(before, inventory(LISTED_MS + 86_400_000)(now), attested, SINCE)
    return {each.key: each.what for each in found}


def test_the_same_objects_have_not_changed() -> None:
    assert changes(dict(BEFORE.objects)) == {}
    counts, _ = compare(BEFORE, BEFORE, NOTHING, SINCE)
    assert counts["objects"] == 3, "of the hour that was open, nothing is known"


@pytest.mark.parametrize(
    ("now", "found"),
    [
        ({"contracts/v2.json": "etag:5"}, {}),
        # A writer's batch that comes again replaces its object, and new ones come all the hour.
        ({OPEN: "etag:9", OPEN.replace("now", "new"): "etag:5"}, {}),
        ({OPEN: None}, {}),
        # A copy in a folder has digests of another kind; what is missing is missing all the same.
        ({A: "sha256:1", B: None, CONTRACT: None}, {B: "removed", CONTRACT: "removed"}),
    ],
)
def test_no_change_of_a_closed_hour(now: dict[str, str | None], found: dict[str, str]) -> None:
    objects = {key: digest for key, digest in {**BEFORE.objects, **now}.items() if digest}
    assert changes(objects) == found


@pytest.mark.parametrize(
    ("steps", "now", "found"),
    [
        ([("etag:1", "etag:5")], "etag:5", {}),
        ([("etag:1", "etag:5"), ("etag:5", "etag:6")], "etag:6", {}),
        ([("etag:1", "etag:5"), ("etag:5", None)], None, {}),
        ([("etag:1", "etag:5")], "etag:6", {A: "altered"}),
        ([("etag:1", "etag:5")], None, {A: "removed"}),
        ([("etag:1", "etag:5")], "etag:1", {A: "altered"}),
        ([("etag:1", "etag:5"), ("etag:5", "etag:6")], "etag:5", {A: "altered"}),
        ([("etag:1", None)], "etag:1", {A: "added"}),
        ([("etag:1", "etag:1")], "etag:1", {}),
        ([("etag:1", "etag:5"), ("etag:5", "etag:1")], "etag:1", {}),
        ([("etag:0", "etag:1")], "etag:0", {A: "altered"}),
    ],
)
def test_its_record_says(steps: list[tuple[str, str | None]], now: str | None, found: dict[str, str]) -> None:
    objects = {key: digest for key, digest in {**BEFORE.objects, A: now}.items() if digest}
    assert changes(objects, Attested(erased={A: dict(steps)})) == found


def test_an_object_stays_altered_until_it_is_restored() -> None:
    first = Verdicts().history().follow(BEFORE, NOTHING)
    verdicts = Verdicts(first)
    altered = inventory()({**BEFORE.objects, A: "etag:9", LATER: "etag:5"})
    second = verdicts.history().follow(altered, NOTHING)
    verdicts.file(second)
    third = verdicts.history().follow(altered, NOTHING)
    assert {each.key: each.what for each in third.changes} == {A: "altered", LATER: "added"}
    verdicts.file(third)
    assert verdicts.history().follow(BEFORE, NOTHING).changes == ()


def test_days_that_only_one_of_the_audits_read_are_not_compared() -> None:
    before = inventory(days={"tap": ("2026-03-02", None)})({})
    assert changes({A: "etag:1"}, before=before) == {}
    narrow = inventory(days={"tap": ("2026-03-02", None)})({})
    assert compare(BEFORE, narrow, NOTHING, SINCE)[1] == [Edit(CONTRACT, "removed", "etag:4", None, SINCE)]


class Verdicts:
    """The audit's folder after the verdicts on `chains`, as a job files them."""

    def __init__(self, *chains: Chain) -> None:
        self.files: dict[str, bytes] = {}
        for each in chains:
            self.file(each)

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def history(self) -> Past:
        objects: Any = self  # all that is used of it
        return Past(objects, "2026-03-01")

    def file(self, chain: Chain, *, is_sent: bool = True) -> bytes:
        self.files[inventory_name("2026-03-01", chain.digest)] = gzip.compress(chain.filed)
        report = document(chain=chain.as_dict(), revision=revision(chain.before, TOTALS))
        body = json.dumps(report).encode()
        self.files[report_name("2026-03-01", report["revision"]["number"])] = body
        if is_sent:
            self.files[verdict_name("2026-03-01")] = verdict_event(body).json.encode() + b"\n"
        return body

    def filed(self, times: int) -> Verdicts:
        """The folder after so many more audits of `BEFORE`."""
        for _ in range(times):
            self.file(self.history().follow(BEFORE, NOTHING))
        return self


def keys(verdicts: Verdicts, attested: Attested = NOTHING) -> dict[str, str]:
    chain = verdicts.history().follow(BEFORE, attested)
    return {each.key: each.what for each in chain.changes}


def test_each_verdict_has_the_digest_of_the_one_before() -> None:
    verdicts = Verdicts().filed(3)
    assert keys(verdicts) == {}
    last = verdicts.history().last()
    assert last is not None
    assert revision_of(last) == 2
    first = verdict_event(verdicts.files["reports/2026-03-01/0.json"])
    assert first.data()["chain"]["begins"] is None, "the chain begins here"
    assert last.data()["chain"]["begins"] == first.attributes["time"]
    before = verdict_event(verdicts.files["reports/2026-03-01/1.json"])
    assert last.data()["chain"]["before"] == digest_of(before.json.encode())
    assert last.data()["chain"]["compared"] == {
        **dict.fromkeys(("altered", "removed", "added", "erased"), 0),
        "objects": 3,
    }


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_report_that_was_altered_or_removed_is_found(number: int) -> None:
    name = f"reports/2026-03-01/{number}.json"
    verdicts = Verdicts().filed(3)
    verdicts.files[name] = verdicts.files[name].replace(b"open", b"proven")
    assert keys(verdicts) == {f"audit/{name}": "altered"}
    filed = json.loads(verdicts.files[name])
    for text in (
        *(b"{", b"[" * 100_000, b"null"),
        *(json.dumps(filed | {"watermark": {"as_of_ms": each}}).encode() for each in (None, "x", 10**30)),
        *(
            json.dumps(filed | {"window": {"date": each}}).encode()
            for each in (None, "", 1.5, "\ud800", "\0")
        ),
    ):
        verdicts.files[name] = text
        assert keys(verdicts) == {f"audit/{name}": "altered"}
    del verdicts.files[name]
    assert keys(verdicts) == {f"audit/{name}": "removed"}
    key = f"audit/{name}"
    assert keys(verdicts, Attested(erased={key: {"etag:1": None}})) == {}, "it deletes what names a person"
    assert keys(verdicts, Attested(erased={key: {"etag:1": "etag:2"}})) == {key: "removed"}
    assert keys(verdicts, Attested(unfinished={key: [("etag:1", "")]})) == {key: "unfinished"}


def test_an_altered_verdict_does_not_fit_its_report() -> None:
    verdicts = Verdicts().filed(2)
    name = verdict_name("2026-03-01")
    verdicts.files[name] = verdicts.files[name].replace(b'"open"', b'"proven"')
    assert keys(verdicts) == {"audit/reports/2026-03-01/1.json": "altered"}
    members = b"chain", b"inventory", b"revision", b"totals", b"share", b"verdict", b"time"
    sent = verdicts.files[name]
    for text in (b"no event", *(sent.replace(b'"%b":' % each, b'"other":') for each in members)):
        verdicts.files[name] = text
        assert keys(verdicts) == {}, "the reports say it again"


@pytest.mark.parametrize("damage", [None, b"", b"no gzip", gzip.compress(b"{}", mtime=0)])
def test_an_inventory_that_is_gone_or_altered_is_found(damage: bytes | None) -> None:
    verdicts = Verdicts().filed(1)
    (name,) = (each for each in verdicts.files if each.startswith("inventories/"))
    if damage is None:
        del verdicts.files[name]
    else:
        verdicts.files[name] = damage
    assert keys(verdicts) == {f"audit/{name}": "removed"}


def test_a_report_whose_verdict_was_not_sent_counts_and_its_verdict_is_due() -> None:
    verdicts = Verdicts().filed(1)
    body = verdicts.file(verdicts.history().follow(BEFORE, NOTHING), is_sent=False)
    assert list(verdicts.history().unsent()) == [verdict_event(body)]
    assert verdicts.history().last() == verdict_event(body)
    assert keys(verdicts) == {}


def test_findings_name_the_object_and_what_it_was() -> None:
    found = (Edit(A, "altered", "etag:1", "etag:9", SINCE), Edit(LATER, "added", None, "e", SINCE))
    chain = Chain(BEFORE, None, None, found)
    altered, added = chain.findings(None)
    assert (altered.kind, altered.hop, altered.archive_file, altered.date) == (
        "altered_object",
        "archive",
        A,
        "2026-03-01",
    )
    assert altered.detail == f"altered since {SINCE}: its digest was etag:1 and is etag:9"
    assert "added after its hour was closed" in str(added.detail)
    assert next(chain.findings("2026-03-07")).date == "2026-03-07", "the tables of the day"
    assert chain.removed() == [A]


KEYS = st.sampled_from([A, B, LATER, PARQUET, CONTRACT])
DIGESTS = st.sampled_from(["etag:1", "etag:2", "etag:3"])


@given(st.dictionaries(KEYS, DIGESTS), st.dictionaries(KEYS, DIGESTS))
def test_each_difference_is_a_change(before: dict[str, str], now: dict[str, str]) -> None:
    _, found = compare(inventory()(before), inventory()(now), NOTHING, SINCE)
    expected = {}
    for key in {*before, *now}:
        if before.get(key) != now.get(key) and not (key == CONTRACT and key not in before):
            expected[key] = "added" if key not in before else "removed" if key not in now else "altered"
    assert {each.key: each.what for each in found} == expected


@given(st.dictionaries(KEYS, DIGESTS))
def test_an_inventory_reads_back_and_its_text_is_one(objects: dict[str, str]) -> None:
    made = inventory()(objects)
    assert Inventory.parse(made.body) == made
    assert inventory()(dict(reversed(objects.items()))).body == made.body
