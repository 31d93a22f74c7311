"""`eventplane dead-letters VERB`: what could not be delivered, and how it is sent again."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final

from eventplane.ledger import TAP
from operations import system
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
from operations.dead_letters import Redrive, summaries
from operations.dead_letters_text import (
    letter_document,
    letter_text,
    moved_document,
    moved_text,
    summaries_text,
    summary_document,
)
from operations.errors import NoLetterInboxError
from operations.letters import Letter
from operations.mover import Moved
from operations.places import Choice, Place, inbox_place, place_of, read_choice, waiting_letters
from operations.queues import PlaneQueues

_EVERY: Final = 100
"""Messages between two signs of life."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verb = add_verbs(parser)
    listing = verb("list", _with(_Command.count), "how many wait where, since when, and why")
    showing = verb("show", _with(_Command.show), "each with its reason, what to do, and its original bytes")
    redriving = verb("redrive", _with(_Command.redrive), "send them back to where they came from")
    for each in (showing, redriving):
        each.add_argument("id", nargs="?", metavar="ID", help="of a message, or of an event in it")
    redriving.add_argument("--all", action="store_true", help="everything at the named places")
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
            "--filter", metavar="CESQL", help="only what passes: \"deadletterreason = 'payload_invalid'\""
        )
        names = ["--archived"] if each is redriving else ["--archived", "--letters"]
        each.add_argument(*names, action="store_true", help="the dead letters of the archive")
        add_days(each)
        each.set_defaults(letters=False)
    redriving.add_argument(
        "--letters",
        action="store_true",
        help="the dead-letter events in the inbox that the contract leads them to, taken as its reader",
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

    def _places(self) -> list[Place]:
        """The queues that the options name; every dead-letter queue, where they name nothing at all."""
        options = self._options
        places = [place_of(each) for each in self._queues.chosen(options.queue)]
        if not options.queue and (options.letters or options.archived) and hasattr(options, "id"):
            places = []
        return places + ([inbox_place(self._contract, self._queues)] if options.letters else [])

    def _inbox_if_any(self) -> list[Place]:
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
