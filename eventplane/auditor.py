"""The audit as a participant, and where it files its reports and verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from eventplane.envelope import parse_event

AUDITOR: Final = "audit"
"""The participant: its outbox carries verdicts; nothing is routed to its inbox."""

VERDICT: Final = "org.eventplane.audit.verdict.v1"
"""The verdict on a window, with its totals."""

REPORTS: Final = "reports"
"""The folder of the audit with one report for each window and revision."""

VERDICTS: Final = "verdicts"
"""The folder of the audit with the last verdict on each window."""


def report_name(window: str, revision: int) -> str:
    """Return the name of a report beneath the audit's folder."""
    return f"{REPORTS}/{window}/{revision}.json"


def verdict_name(window: str) -> str:
    """Return the name of the last verdict on `window`, a day or `all`, beneath the audit's folder."""
    return f"{VERDICTS}/{window}.json"


def last_report(read: Callable[[str], bytes | None], window: str) -> Mapping[str, Any] | None:
    """Return the last report on `window`; None when nobody audited it.

    `read` returns what lies beneath the audit's folder, None for a name that does not exist.
    """
    verdict = read(verdict_name(window))
    if verdict is None:
        return None
    body = read(parse_event(verdict).data()["report"])
    # An erasure deletes reports that name the person.
    return None if body is None else json.loads(body)
