"""`eventplane dead-letters VERB`: what could not be delivered, and how it is sent again."""

from __future__ import annotations

import argparse
import base64
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields
from functools import cached_property
from typing import Any, Final

from eventplane.account import Account
from eventplane.ledger import TAP
from operations import system, text
from operations.archive import add_days, check_days, days_of, is_folder, say_damaged
from operations.archived_letters import archived_letters
from operations.cloud import Cloud, enter
from operations.command import (
    DONE,
    FAILED,
    ChoiceError,
    Run,
    add_contract,
    add_verbs,
    contract_of,
    present,
    say,
)
from operations.dead_letters import Redrive, Summary, outcome, summaries
from operations.errors import NoLetterInboxError
from operations.letters import UNKNOWN, Letter
from operations.mover import Moved
from operations.places import Choice, LetterPlace, inbox_place, place_of, read_choice, waiting_letters
from operations.queues import PlaneQueues
from operations.reading import UNSEEN
from operations.reason_texts import explained

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
    """Return the result of a run at one place in words, and why something stayed."""
    lines = [f"{title}: " + ", ".join(f"{count} {word}" for word, count in outcome(done))]
    if dry_run:
        lines = [f"{title}: {done.moved} would move, nothing was changed"]
        lines += [f"{chosen} not chosen"] if (chosen := done.left - done.others) else []
        lines += [f"{done.others} other events"] if done.others else []
        lines += [f"{done.unseen} {UNSEEN}"] if done.unseen else []
    reasons = {**done.stay, **{id: f"SQS refused it: {code}" for id, code in done.refused.items()}}
    return "\n".join([*lines, *(f"  {text.word(id)}: {text.word(why)}" for id, why in reasons.items())])


def moved_document(title: str, done: Moved, *, run: str, dry_run: bool) -> dict[str, Any]:
    """Return the result of a run as JSON."""
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


_EVERY: Final = 100
"""Messages between two signs of life."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verb = add_verbs(parser)
    listing = verb(
        "list", _with(_Command.count), "count the undeliverable messages by queue, with age and reasons"
    )
    showing = verb("show", _with(_Command.show), "show messages with reason, remedy and original bytes")
    redriving = verb("redrive", _with(_Command.redrive), "send messages back to where they came from")
    for each in (showing, redriving):
        each.add_argument("id", nargs="?", metavar="ID", help="id of a message, or of an event in it")
    redriving.add_argument("--all", action="store_true", help="every message of the named queues")
    redriving.add_argument("--dry-run", action="store_true", help="only print what would move")
    for each in (listing, showing, redriving):
        add_contract(each)
        each.add_argument(
            "--queue",
            action="append",
            default=[],
            metavar="NAME",
            help="the dead-letter queue of this queue or channel (care-analytics.inbox, ingest); repeatable",
        )
        each.add_argument(
            "--filter", metavar="CESQL", help="only matching ones: \"deadletterreason = 'payload_invalid'\""
        )
        names = ["--archived"] if each is redriving else ["--archived", "--letters"]
        each.add_argument(
            *names, action="store_true", help="those that the archive has of devices, routers and readers"
        )
        add_days(each)
        each.set_defaults(letters=False)
    redriving.add_argument(
        "--letters",
        action="store_true",
        help="the dead-letter events in the inbox that the contract routes them to; received as its reader",
    )


def _with(verb: Callable[[_Command], int]) -> Run:
    return lambda options: verb(_Command(options))


class _Command:
    """One command line, carried out. What is wrong with it is found before the cloud is entered."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._choice: Choice = read_choice(getattr(options, "id", None), options.filter)
        check_days(options)
        self._contract = contract_of(options)
        named = options.queue or options.letters
        # A copy of the archive is read without a cloud.
        self._is_local = options.archived and is_folder(options.archive) and not named

    @cached_property
    def _cloud(self) -> Cloud:
        return enter(self._options.env)

    @cached_property
    def _queues(self) -> PlaneQueues:
        return PlaneQueues(self._cloud, self._options.env, self._contract)

    def count(self) -> int:
        """Count what waits, and what is archived on demand."""
        document: dict[str, Any] = {}
        lines: list[str] = []
        if not self._is_local:
            document, lines = self._waiting()
        if self._options.archived:
            reasons = Counter(letter.reason for letter in self._archived())
            document["archived"] = dict(reasons)
            lines += [
                f"archived: {', '.join(f'{word} {count}' for word, count in reasons.items()) or 'none'}"
            ]
        present(self._options, document, "\n".join(lines))
        return DONE

    def _waiting(self) -> tuple[dict[str, Any], list[str]]:
        """What waits in the queues, as a document and as text."""
        places = self._places()
        if not self._options.queue:
            places += self._inbox_if_any()
        found = list(summaries(self._cloud.sqs, self._queues, places, self._choice))
        for address in self._queues.missing:
            say(f"{address} has no queue here: deploy the contract, or name the deployed one with --contract")
        document = {"queues": [summary_document(each) for each in found], "missing": self._queues.missing}
        return document, [summaries_text(found, system.now_ms())]

    def show(self) -> int:
        """Print each dead letter."""
        found = list(self._letters())
        accounts = [each.account(self._contract) for each in found]
        shown = "\n\n".join(map(letter_text, found, accounts)) or "no such dead letter"
        document = [
            {**letter_document(each), "account": account and account.document()}
            for each, account in zip(found, accounts, strict=True)
        ]
        present(self._options, document, shown)
        return DONE if found else FAILED

    def redrive(self) -> int:
        """Send dead letters back."""
        options = self._options
        if options.all != self._choice.is_all:
            raise ChoiceError(
                "say which messages go back: ID, --filter EXPRESSION, or --all, which is everything"
            )
        if not (options.queue or options.letters or options.archived):
            raise ChoiceError("say from where: --queue NAME (`list` has the names), --letters or --archived")
        redrive = Redrive(
            self._cloud.sqs,
            self._queues,
            self._contract,
            dry_run=options.dry_run,
            progress=_progress,
            run=system.random_bytes(8).hex(),
            clock=system.now_ms,
            sleep=system.sleep,
        )
        moved = {place.title: redrive.place(place, self._choice) for place in self._places()}
        if options.archived:
            moved["archive"] = redrive.archived(self._archived(), self._choice)
        document = [
            moved_document(title, done, run=redrive.run, dry_run=options.dry_run)
            for title, done in moved.items()
        ]
        lines = [moved_text(title, done, dry_run=options.dry_run) for title, done in moved.items()]
        present(options, document, "\n".join(lines))
        return (
            DONE
            if any(done.moved for done in moved.values()) and all(map(_is_clean, moved.values()))
            else FAILED
        )

    def _places(self) -> list[LetterPlace]:
        """The queues that the options name; every dead-letter queue, where they name nothing at all."""
        options = self._options
        places = [place_of(each) for each in self._queues.chosen(options.queue)]
        if not options.queue and (options.letters or options.archived) and hasattr(options, "id"):
            places = []
        return places + ([inbox_place(self._contract, self._queues)] if options.letters else [])

    def _inbox_if_any(self) -> list[LetterPlace]:
        try:
            return [inbox_place(self._contract, self._queues)]
        except NoLetterInboxError as error:
            say(str(error))
            return []

    def _letters(self) -> Iterator[Letter]:
        for place in [] if self._is_local else self._places():
            # A look at an empty queue takes a second. The count is approximate: who names one gets the look.
            if not (self._options.queue or self._queues.counts(place.url)[0]):
                continue
            yield from waiting_letters(self._cloud.sqs, place, self._choice)
        if self._options.archived:
            yield from self._archived()

    def _archived(self) -> Iterator[Letter]:
        days = days_of(self._options, None if is_folder(self._options.archive) else self._cloud)
        device = self._contract.device
        letters = archived_letters(days, device.outbox.address, device.inbox.address)
        yield from filter(self._choice.takes, letters)
        say_damaged(days)
        if left := days.left(TAP):
            say(f"the archive may have more: {left}")


def _is_clean(done: Moved) -> bool:
    return not (done.stay or done.refused or done.twice or done.unseen)


def _progress(moved: int, of: int | None) -> None:
    if of is not None or (moved and moved % _EVERY == 0):
        say(f"{moved} moved" + (f" of about {of}" if of is not None else ""))
