"""The pages of the health endpoint, by path."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edge.health.http import Response
from edge.health.metrics import CONTENT_TYPE, render
from edge.health.snapshots import Snapshots
from edge.health.verdict import Finding, Health, overall, to_json

PATIENCE_S = 3.0
"""How long the loop may be busy, seconds: a commit on worn flash takes one."""


def pages(snapshots: Snapshots) -> Mapping[str, Callable[[], Response]]:
    """`/healthz` and `/metrics`."""
    return {"/healthz": lambda: _healthz(snapshots), "/metrics": lambda: _metrics(snapshots)}


def _healthz(snapshots: Snapshots) -> Response:
    snapshot = snapshots.ask(PATIENCE_S)
    if snapshot is None:
        problem = f"the forwarder's loop did not turn for {PATIENCE_S:g} s"
        remedy = "see whether its disk answers; systemd's watchdog restarts it if it stays so"
        return _json(503, to_json([Finding("loop_stalled", Health.FAILING, problem, remedy)]))
    figures, findings = snapshot
    status = 503 if overall(findings) is Health.FAILING else 200
    return _json(
        status,
        to_json(findings, thing=figures.thing, uptime_s=round(figures.uptime_s), pending=figures.pending),
    )


def _metrics(snapshots: Snapshots) -> Response:
    snapshot = snapshots.ask(PATIENCE_S)
    if snapshot is None:
        return Response(503, f"the forwarder's loop did not turn for {PATIENCE_S:g} s\n")
    return Response(200, render(snapshot), CONTENT_TYPE)


def _json(status: int, body: str) -> Response:
    return Response(status, body, "application/json")
