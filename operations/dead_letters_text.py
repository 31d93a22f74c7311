"""How dead letters are shown: tables for people, documents for programs."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any, Final

from eventplane.account import Account
from eventplane.reasons import explained
from operations import text
from operations.dead_letters import Summary, outcome
from operations.letters import UNKNOWN, Letter
from operations.mover import Moved
from operations.reading import UNSEEN

_SENDERS: Final = 3
"""Most senders that a line of the table names."""


def summaries_text(summaries: Sequence[Summary], now_ms: int) -> str:
    """A line for each place where something waits."""
    full = [each for each in summaries if each.waiting or each.hidden]
    empty = f"{len(summaries) - len(full)} of {len(summaries)} queues are empty"
    if not full:
        return empty
    rows = [
        [each.title, _count(each), _oldest(each, now_ms), _reasons(each), _senders(each)] for each in full
    ]
    return f"{text.table(['FOR', 'WAITING', 'OLDEST', 'REASONS', 'SENDERS'], rows)}\n{empty}"


def summary_document(summary: Summary) -> dict[str, Any]:
    """A place as JSON."""
    return {**asdict(summary), "reasons": dict(summary.reasons), "senders": dict(summary.senders)}


def letter_text(letter: Letter, account: Account | None = None) -> str:
    """Everything about one letter, and the `account` of what it is about."""
    means, remedy = explained(letter.reason)
    pairs = [
        ("queue" if letter.body else "place", letter.place),
        ("id", letter.id),
        ("kind", letter.kind.value),
        ("reason", letter.reason),
        ("detail", letter.detail),
        ("means", means),
        ("to do", remedy),
        ("channel", letter.channel or "unknown"),
        ("route", letter.route or "none"),
        ("contract", letter.contract_version or "unknown"),
        ("attempt", str(letter.attempt)),
        ("since", text.moment(letter.since_ms)),
        ("sender", str(letter.sender or UNKNOWN)),
    ]
    pairs += [("account", f"{account.inbox or 'every inbox'}: {account}")] if account else []
    pairs += [("written by", str(letter.written_by))] if letter.written_by else []
    pairs += [("event", f"{each.type}, id {each.id} of {each.source}") for each in letter.events]
    size = "not known" if letter.original_bytes is None else f"{letter.original_bytes} bytes"
    return f"{text.pairs([*pairs, ('original', size)])}\n{text.shown(letter.original)}".rstrip()


def letter_document(letter: Letter) -> dict[str, Any]:
    """A letter as JSON; its original in base64, as it need be no text."""
    others = ("events", "original", "body", "sender", "written_by")
    return {
        **{each.name: getattr(letter, each.name) for each in fields(letter) if each.name not in others},
        "sender": str(letter.sender or ""),
        "written_by": str(letter.written_by or ""),
        "events": [dict(each.attributes) for each in letter.events],
        "original_base64": base64.b64encode(letter.original).decode("ascii"),
    }


def moved_text(title: str, done: Moved, *, dry_run: bool) -> str:
    """What a run did at one place, and why something stayed."""
    lines = [f"{title}: " + ", ".join(f"{count} {word}" for word, count in outcome(done))]
    if dry_run:
        lines = [f"{title}: {done.moved} would move, nothing was changed"]
        lines += [f"{done.left} not chosen"] if done.left else []
        lines += [f"{done.unseen} {UNSEEN}"] if done.unseen else []
    reasons = {**done.stay, **{id: f"SQS refused it: {code}" for id, code in done.refused.items()}}
    return "\n".join([*lines, *(f"  {text.word(id)}: {text.word(why)}" for id, why in reasons.items())])


def moved_document(title: str, done: Moved, *, run: str, dry_run: bool) -> dict[str, Any]:
    """What a run did, as JSON."""
    return {"for": title, "run": run, "dry_run": dry_run, **asdict(done)}


def _count(summary: Summary) -> str:
    return f"{summary.waiting} (+{summary.hidden} hidden)" if summary.hidden else str(summary.waiting)


def _oldest(summary: Summary, now_ms: int) -> str:
    return "" if summary.oldest_ms is None else text.age((now_ms - summary.oldest_ms) / 1_000)


def _reasons(summary: Summary) -> str:
    if summary.looked is None:
        return "in the inbox, for its reader; see --archived"
    words = ", ".join(f"{reason} {count}" for reason, count in summary.reasons.most_common())
    return f"{words} (of the first {summary.looked})" if summary.has_more else words


def _senders(summary: Summary) -> str:
    """Those of most letters, with the number of each."""
    most = summary.senders.most_common(_SENDERS)
    words = ", ".join(f"{sender} {count}" for sender, count in most)
    return f"{words}, ..." if len(summary.senders) > len(most) else words
