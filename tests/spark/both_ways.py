"""An archive audited with Spark and without it, and how the results differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from glue_jobs.common import system
from glue_jobs.common.archive import Archive
from glue_jobs.delivery_audit import rows
from glue_jobs.delivery_audit.audit import FOUND, Audit, AuditRequest, audit
from glue_jobs.delivery_audit.event_group import TapRow
from glue_jobs.delivery_audit.large import SparkEngine, SparkTables
from glue_jobs.delivery_audit.publication import Table, table_of, tables
from glue_jobs.delivery_audit.report import latency, report
from glue_jobs.delivery_audit.small import PlainEngine, rows_of


def result(audit: Audit) -> dict[str, Any]:
    """All that a report and its tables are made of, in one order."""
    figures, judgement = audit.figures, audit.judged.judgement
    return {
        "extent": figures.extent,
        "counts": sorted((str(key), count) for key, count in judgement.counts.items() if count),
        "latency": latency(judgement.latencies),
        "uses": [(each.contract.version, each.first_used_ms) for each in audit.history.uses],
        "kinds": sorted(audit.kinds.items()),
        "others": sorted(map(str, audit.others)),
        "coverage": audit.coverage,
        **{kind: sorted(map(_unordered, _listed(audit.found[kind]))) for kind in FOUND},
    }


def differences(spark: SparkSession, request: AuditRequest) -> dict[str, Any]:
    """Return by name the rows, findings and members of the report that differ: Spark's, and Python's."""
    source, work = Archive(spark, request.objects), f"compared/{system.new_id()}"

    def by_spark() -> dict[str, Any]:
        tables = SparkTables(spark, f"{request.work.uri}/{work}/{system.new_id()}")
        return _audited(_BySpark(source, request, tables), request)

    one, other = source.isolating(by_spark), _audited(_ByPython(request), request)
    request.work.clear(work)
    both = {name: (_items(one[name]), _items(other[name])) for name in one if one[name] != other[name]}
    return {name: ([*(spark - python)], [*(python - spark)]) for name, (spark, python) in both.items()}


def _audited(engine: _BySpark | _ByPython, request: AuditRequest) -> dict[str, Any]:
    made = audit(engine, request)
    document = report(made, made.chain, [], [])
    assert document.pop("engine") == engine.name
    lists = {name: sorted(map(str, document.pop(name))) for name in ("findings", "flow", "devices")}
    written = {name: engine.written(made, table) for name, table in tables(made, []).items()}
    groups = defaultdict[Any, list[tuple[Any, ...]]](list)
    for key, second, *structs in engine.groups:
        groups[key, second].append(tuple(structs))
    return {
        **document,
        **lists,
        **result(made),
        **{name: sorted(map(_unordered, each)) for name, each in written.items()},
        "groups": sorted(map(_group, groups.values())),
        "clients": sorted(map(_unordered, engine.clients)),
    }


class _BySpark(SparkEngine):
    """Keeps what the archive has of each event and of each client."""

    def _screened(self, tap: Any, ledger: Any, handovers: Any, task: Any) -> Any:
        self.groups = rows.grouped(tap, ledger, handovers).collect()
        return super()._screened(tap, ledger, handovers, task)

    def _devices(self, hours: DataFrame, *known: Any) -> Any:
        self.clients = hours.collect()
        return super()._devices(hours, *known)

    def written(self, made: Audit, table: Table) -> list[Any]:
        """Return the rows of a table."""
        found = table_of(self.spark, made, table)
        return found.collect() if found else []


class _ByPython(PlainEngine):
    """The same without Spark."""

    def _screened(self, table: Any, task: Any) -> Any:
        self.groups = [*table]
        return super()._screened(table, task)

    def _devices(self, sent: Any, *known: Any) -> Any:
        self.clients = [(*hour, *more) for hour, *more in sent]
        return super()._devices(sent, *known)

    written = staticmethod(rows_of)


def _listed(found: list[Any] | DataFrame) -> list[Any]:
    return found if isinstance(found, list) else found.collect()


def _items(value: Any) -> Counter[str]:
    return Counter(map(str, value if isinstance(value, list) else [value]))


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
    if isinstance(value, str):
        return repr(str(value))
    return repr(bytes(value) if isinstance(value, bytearray) else value)
