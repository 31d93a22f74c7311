"""The words of the audit as a participant: who tells its verdicts, and as what."""

from __future__ import annotations

from typing import Final

AUDITOR: Final = "audit"
"""The participant: its outbox carries verdicts; nothing is led to its inbox."""

VERDICT: Final = "org.eventplane.audit.verdict.v1"
"""The verdict on a window, with its totals."""
