from __future__ import annotations

import logging

from edge.journal import DAMP_BURST, DAMP_S, Damper, JournalFormatter


def record(message: str, *arguments: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("edge.link", level, "f", 1, message, arguments, None)


def test_every_line_of_a_record_has_its_priority() -> None:
    formatter = JournalFormatter("%(name)s: %(message)s")
    assert formatter.format(record("one\ntwo", level=logging.ERROR)) == "<3>edge.link: one\n<3>two"
    assert formatter.format(record("x", level=logging.CRITICAL)).startswith("<2>")
    assert formatter.format(record("x", level=logging.INFO)).startswith("<6>")
    assert formatter.format(record("x", level=logging.DEBUG)).startswith("<7>")


def test_repeated_complaints_are_damped_and_counted() -> None:
    now = [0.0]
    damper = Damper(lambda: now[0])
    passed = [damper.filter(record("cloud: %s", number)) for number in range(DAMP_BURST + 7)]
    assert passed == [True] * DAMP_BURST + [False] * 7
    assert damper.filter(record("another one"))
    now[0] = DAMP_S
    late = record("cloud: %s", "again")
    assert damper.filter(late)
    assert late.getMessage() == "cloud: again (7 more like it were left out)"
    following = record("cloud: %s", "again")
    assert damper.filter(following)
    assert following.getMessage() == "cloud: again"


def test_a_rare_complaint_is_never_damped() -> None:
    now = [0.0]
    damper = Damper(lambda: now[0])
    for _ in range(5 * DAMP_BURST):
        assert damper.filter(record("rare"))
        now[0] += DAMP_S / DAMP_BURST
