"""A generated archive has what the functions write; tests/spark/test_audit_proof.py audits one."""

from __future__ import annotations

from lambdas.http_sink.webhook import LETTER_SOURCE
from lambdas.router.planner import DEAD_LETTER_SOURCE
from local.archive_generator import records


def test_letters_have_the_functions_sources() -> None:
    assert records.ROUTER_LETTERS == DEAD_LETTER_SOURCE
    assert records.WEBHOOK_LETTERS == LETTER_SOURCE
