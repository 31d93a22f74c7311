"""A small report of the audit, as its job writes it (format 3)."""

from datetime import datetime
from typing import Any

from eventplane.account import Fate
from glue_jobs.delivery_audit.home import HOME
from lab.audit_page.page import COLUMNS

HOUR_MS = 3_600_000
FILE = "ledger/date=1970-01-01/hour=01/a.json.gz"
TOTALS = (
    "events_archived expected delivered lost pending misrouted duplicated dead_lettered expired quarantined "
    "devices to_replay tap_copies findings unrecorded not_understood incomplete unattested"
)


def finding(**more: Any) -> dict[str, Any]:
    """A lost event of home-1, or what `more` says."""
    known = {
        "kind": "lost",
        "hop": "router",
        "detail": "no record",
        "device": "home-1",
        "sequence": 7,
        "source": "/homes/1/voice",
        "id": "1",
        "route": "to-care",
        "contract_version": "abc",
        "archive_file": FILE,
        "date": "1970-01-01",
        "at_ms": HOUR_MS,
    }
    return {**dict.fromkeys(COLUMNS), **known, **more}


def hour(device: str, at: str, events: int = 10, lost: int = 0, **more: int) -> dict[str, Any]:
    """A device's hour, which begins at the time `at`."""
    from_ms = round(datetime.fromisoformat(f"{at}:00:00+00:00").timestamp() * 1_000)
    counts = {"events": events, "lost": lost, "late": 0, "pending": 0, "unrecorded": 0, **more}
    return {"client_id": device, "from_ms": from_ms, "until_ms": from_ms + HOUR_MS, **counts}


def device(name: str, **more: int) -> dict[str, Any]:
    """A device's figures."""
    names = "lost pending gaps explained not_stored tap_copies events skew_ms"
    return {
        "client_id": name,
        "epoch": "e",
        "coverage": "attested",
        **dict.fromkeys(names.split(), 0),
        **more,
    }


def report(*findings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The report with these findings, all of them lost by the router."""
    lost = len(findings)
    route = dict.fromkeys(
        [
            *("expected", "delivered", "lost", "unrecorded", "not_understood", "pending", "misrouted"),
            *("duplicated", "expired", "dead_lettered"),
        ],
        3,
    )
    at_home = {**dict.fromkeys(HOME, 0), "stated": 3, "receipt": 2, "broker": 1}
    quantiles = {"p50_ms": -3, "p95_ms": 5, "p99_ms": 6.5, "max_ms": 9}
    return {
        "format": 3,
        "engine": "spark",
        "verdict": "broken" if findings else "proven",
        "reasons": [f"{lost} events lost on the way: router."] if findings else [],
        "coverage": {
            "share": 1.0,
            "events": {"manifest": 10, "numbering": 0, "tap": 0, "nothing": 0},
            "awaiting": 0,
            "best_effort": 0,
            "devices": {"expected": 2, "attested": 2, "partly": 0, "silent": 0, "unregistered": 0},
            "fleet": "fleet/date=1970-01-01/hour=00/snapshot.json.gz",
            "cloud_events": 0,
            "home": at_home,
        },
        "window": {"date": "all", "first_accepted_ms": HOUR_MS, "last_accepted_ms": 2 * HOUR_MS},
        "watermark": {"as_of_ms": 3 * HOUR_MS, "lateness_s": 0, "watermark_ms": 3 * HOUR_MS},
        "revision": {"number": 0, "replaces": None, "verdict": None, "share": None, "changed": {}},
        "chain": {"inventory": 64 * "0", "objects": 3, "begins": None, "before": None, "compared": None},
        "archive": {"folders": [], "holes": []},
        "days": [],
        "trend": [],
        "flow": [],
        "contract_versions": [{"name": "small", "version": "abc"}],
        "totals": {**dict.fromkeys(TOTALS.split(), 0), "lost": lost, "findings": lost},
        "homes": [{"inbox": "call.inbox", **at_home}],
        "lost_by_hop": {
            "device_inbox": 0,
            "device_cloud": 0,
            "iot_rule": 0,
            "router": lost,
            "inbox_consumer": 0,
        },
        "pending_by_hop": dict.fromkeys(
            ("device_inbox", "device_cloud", "iot_rule", "router", "inbox_consumer"), 0
        ),
        "latency": [{"hop": "cloud_to_inbox", "priority": "urgent", "samples": 4, **quantiles}],
        "devices": [],
        "kinds": [{"kind": "lost", "hop": "router", "count": lost, "weight": "broken"}] if lost else [],
        "routes": [{"route": "to-care", "destination": "care.inbox", **route}],
        "accounts": [{"inbox": "care.inbox", **dict.fromkeys(map(str, Fate), 3)}],
        "consumers": [],
        "dead_letters": [],
        "findings": list(findings),
        "quarantine": [],
        "hours": [],
        **more,
    }
