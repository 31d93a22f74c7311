"""How urgent an event says it is: the CloudEvents severity extension, in the numbers of OpenTelemetry."""

from __future__ import annotations

from typing import Literal

SEVERITY_NUMBERS = range(1, 25)
"""From TRACE (1 to 4) over DEBUG, INFO, WARN and ERROR to FATAL (21 to 24)."""

_INFO, _ERROR = 9, 17


def priority_of(severitynumber: int) -> Literal["urgent", "normal", "low"]:
    """The word of the contract's `Priority` for a severity: ERROR and above are urgent, below INFO is low."""
    if severitynumber >= _ERROR:
        return "urgent"
    return "normal" if severitynumber >= _INFO else "low"
