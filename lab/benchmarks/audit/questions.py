"""The audit's questions (`questions.sql`) of one archive, raw or compacted: what the contracts say, as SQL.

Their CESQL is taken as it stands: the generated contracts use what both languages have.
"""

import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from string import Template
from typing import Any as Anything

from eventplane.contract import Channel, Contract, Ordering, Place
from eventplane.filters import All, Combination, Filter, Not, Prefix, Suffix, Term

ANSWERS = "answers.json"
"""The counts that the audit's report has as well."""

LAST_MS = 253_402_300_799_999
"""The end of the year 9999, Unix milliseconds."""

STEPS = "steps.json"
"""Where it is noted how many seconds each step took."""

_FOLDER = Path(__file__).parent


class QuestionForm(StrEnum):
    """In what form an archive is read."""

    RAW = "raw"
    COMPACTED = "compacted"


def statements(
    archive: str, output: str, contracts: list[Contract], form: QuestionForm
) -> list[tuple[str, str]]:
    """Name and SQL of each step, in their order; the later ones write their answers beneath `output`."""
    inboxes = [each.inbox for contract in contracts for each in contract.participants.values()]
    files = [_FOLDER / f"rows_{form}.sql", _FOLDER / "questions.sql"]
    text = Template("".join(each.read_text() for each in files)).substitute(
        archive=archive,
        output=output,
        last_ms=LAST_MS,
        routes=", ".join(f"'{each.version}': {_routes(each)}" for each in contracts),
        first=contracts[0].version,
        uplink=contracts[0].device.outbox.address,
        ended=_list(each for each in inboxes if each.webhook or each.asks_for_receipts),
        ordered=_list(each for each in inboxes if each.ordering is Ordering.SOURCE),
    )
    return re.findall(r"^-- (\w+)\n(.*?;)\n", text, re.DOTALL | re.MULTILINE)


def to_sql(filter: Filter) -> str:
    """A condition that is true for the events that match, and else false."""
    if isinstance(filter, Not):
        return f"(NOT {to_sql(*filter.filters)})"
    if isinstance(filter, Combination):
        word = " AND " if isinstance(filter, All) else " OR "
        return f"({word.join(map(to_sql, filter.filters))})"
    if not isinstance(filter, Term):
        return f"coalesce(({filter.text}), false)"
    value = filter.value.replace("'", "''")
    if isinstance(filter, Prefix):
        return f"coalesce(starts_with({filter.attribute}, '{value}'), false)"
    if isinstance(filter, Suffix):
        return f"coalesce(ends_with({filter.attribute}, '{value}'), false)"
    return f"coalesce({filter.attribute} = '{value}', false)"


def _routes(contract: Contract) -> str:
    routes = contract.routes_at(Place.CLOUD)
    taken = ", ".join(f"CASE WHEN {to_sql(each.filter)} THEN '{each.name}' END" for each in routes)
    names = f"list_filter([{taken}], lambda each: each IS NOT NULL)"
    return f"CASE WHEN len({names}) = 0 THEN ['-'] ELSE {names} END"


def _list(channels: Iterable[Channel]) -> str:
    return ", ".join(sorted({f"'{each.address}'" for each in channels})) or "NULL"


class DisagreementError(Exception):
    """The audit and the plain questions give other counts; `counts` has both, the audit's first."""

    def __init__(self, counts: Mapping[str, tuple[Anything, Anything]]) -> None:
        told = "; ".join(
            f"{name}: {audit} by the audit, {other} by SQL" for name, (audit, other) in counts.items()
        )
        super().__init__(f"{told}; one of them is wrong: follow a finding of each kind to the archive")
        self.counts = dict(counts)


def check(answers: Path, report: Mapping[str, Anything]) -> dict[str, Anything]:
    """The counts in the folder `answers`, which the `report` must have too. Raises `DisagreementError`."""
    found = json.loads((answers / ANSWERS).read_text())
    kinds = {f"{each['kind']} {each['hop']}": each["count"] for each in report["kinds"]}
    audited: dict[str, Anything] = {name: kinds.get(name, 0) for name in found}
    audited["events_archived"] = report["totals"]["events_archived"]
    audited["delivered"] = {name: each["delivered_total"] for name, each in report["by_destination"].items()}
    if differing := {name: (audited[name], found[name]) for name in found if audited[name] != found[name]}:
        raise DisagreementError(differing)
    return audited
