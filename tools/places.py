"""Where the run behind a figure took place: without it a reader takes a figure for more than was seen."""

from __future__ import annotations

from typing import Final

UNKNOWN: Final = "not said"

_RESULTS: Final = {
    "deployed": (
        *("bench/cloud", "bench/conversation", "bench/cost", "bench/downlink"),
        *("chaos/attack", "chaos/cloud", "chaos/cloud-faults", "chaos/deployment"),
        *("chaos/paper", "chaos/paper-best-effort"),
    ),
    "stand-in": tuple(
        f"chaos/{name}"
        for name in (
            "short",
            "singly",
            "pairs",
            "together",
            "million",
            "device",
            "soak",
            "slow-line",
            "boots",
        )
    ),
    "alone": (
        "chaos/lost-answers",
        *(
            f"bench/{name}"
            for name in (
                *("audit", "audit_hostile", "audit_proof", "audit_values", "audit_worst", "client", "crash"),
                *("edge", "fuzz", "interest", "router", "spool", "tracing"),
            )
        ),
    ),
    "simulated": ("bench/timers", "chaos/histories", "chaos/histories_mutants"),
    "computed": ("bench/plane_size", "bench/scale"),
}
_PLACES: Final = {result: place for place, results in _RESULTS.items() for result in results}


def place(result: str) -> str:
    """Where `result` ("bench/edge") was measured, in the words that the page of figures explains."""
    return _PLACES.get(result, UNKNOWN)
