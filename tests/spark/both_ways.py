"""An archive audited with Spark and without it, and how the results differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from pyspark.sql import SparkSession

from glue_jobs.common.archive import Archive
from glue_jobs.common.lines import PlainArchive
from glue_jobs.delivery_audit.audit import FOUND, Audit, InProcess, Request, Run
from glue_jobs.delivery_audit.event_group import TapRow
from glue_jobs.delivery_audit.publication import tables
from glue_jobs.delivery_audit.report import latency, report
from glue_jobs.delivery_audit.small import InPython


def result(audit: Audit) -> dict[str, Any]:
    """All that a report and its tables are made of, in one order."""
    figures, judgement = audit.figures, audit.judged.judgement
    rows = {kind.__name__: audit.found[kind] for kind in FOUND}
    found = {name: each if isinstance(each, list) else each.collect() for name, each in rows.items()}
    return {
        "extent": figures.extent,
        "counts": sorted((str(key), count) for key, count in judgement.counts.items() if count),
        "latency": latency(judgement.latencies),
        "uses": [(each.contract.version, each.first_used_ms) for each in audit.history.uses],
        "kinds": sorted(audit.kinds.items()),
        "others": sorted(map(str, audit.others)),
        "coverage": audit.coverage,
        **{name: sorted(map(str, each)) for name, each in found.items()},
    }


def differences(spark: SparkSession, request: Request) -> dict[str, Any]:
    """Return by name the rows, findings and members of the report that differ: Spark's, and Python's."""
    source = Archive(spark, request.objects)

    def audited(source: Any, events: Any) -> dict[str, Any]:
        audit = Run(source, request, lambda _: events).audit()
        document = report(audit, audit.chain, [], [])
        assert document.pop("engine") == events.engine
        lists = {name: sorted(map(str, document.pop(name))) for name in ("findings", "flow", "devices")}
        return {
            **document,
            **lists,
            **result(audit),
            **events.rows(),
            **{name: sorted(map(str, table.rows)) for name, table in tables(audit, []).items()},
        }

    one = source.isolating(lambda: audited(source, _Recorded(request.progress)))
    other = audited(PlainArchive(request.objects), _InPython(request.progress))
    both = {name: (_items(one[name]), _items(other[name])) for name in one if one[name] != other[name]}
    return {name: ([*(spark - python)], [*(python - spark)]) for name, (spark, python) in both.items()}


def _items(value: Any) -> Counter[str]:
    return Counter(map(str, value if isinstance(value, list) else [value]))


class _Recorded(InProcess):
    """Keeps what an audit makes of the archive's rows."""

    _hours: list[Any]

    def device_hours(self, tap: Any, contracts: Any) -> Any:
        made = super().device_hours(tap, contracts)
        self._hours = made if isinstance(made, list) else made.collect()
        return self._hours

    def rows(self) -> dict[str, Any]:
        """The rows of each event, which met by their keys, and of each client, without an order."""
        groups = defaultdict[Any, list[tuple[Any, ...]]](list)
        for key, second, *structs in self._rows:
            groups[key, second].append(tuple(structs))
        clients = sorted(map(_unordered, self._hours))
        return {"groups": sorted(map(_group, groups.values())), "clients": clients}


class _InPython(_Recorded, InPython):
    pass


def _group(rows: list[tuple[Any, ...]]) -> str:
    """What is known of one event; of the hashes of its data, which of them are equal."""
    place = TapRow._fields.index("data_digest")
    hashes = Counter(row[0][place] for row in rows if row[0])
    plain = [(row[0] and (*row[0][:place], *row[0][place + 1 :]), *row[1:]) for row in rows]
    return str((sorted(hashes.values()), None in hashes, _unordered(plain)))


def _unordered(value: Any) -> str:
    """The value as text, in which lists have no order and a row is a tuple."""
    if isinstance(value, list):
        return str(sorted(map(_unordered, value)))
    if isinstance(value, tuple):
        return str([*map(_unordered, value)])
    return repr(bytes(value) if isinstance(value, bytearray) else value)
