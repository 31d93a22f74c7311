"""`python -m eventplane dead-letters list | show | redrive`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Final

from eventplane.contract import Contract
from operations.archived_letters import archived_letters
from operations.cloud import Cloud, enter
from operations.command import DONE, INCOMPLETE, answer, answer_json, run, say
from operations.dead_letters import Redrive, summaries
from operations.dead_letters_options import dead_letters_parser
from operations.dead_letters_text import (
    letter_document,
    letter_text,
    moved_document,
    moved_text,
    summaries_text,
    summary_document,
)
from operations.errors import ChoiceError, NoLetterInboxError
from operations.letter_inbox import letter_inbox
from operations.letters import Letter
from operations.mover import Moved
from operations.options import contract_of, days_of, say_damaged
from operations.places import LOOK, Choice, Place, inbox_place, place_of, read_choice, waiting_letters
from operations.queues import PlaneQueues

_EVERY: Final = 100
"""Messages between two signs of life."""


def main(arguments: list[str]) -> int:
    """The exit status; see `operations.command`."""
    options = dead_letters_parser().parse_args(arguments)
    return run(lambda: _Command(options).run())


class _Command:
    """One command line, carried out."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._choice: Choice = read_choice(getattr(options, "id", None), options.filter)
        self._contract: Contract = contract_of(options)
        self._cloud: Cloud = enter()
        self._queues = PlaneQueues(self._cloud, options.env, self._contract)

    def run(self) -> int:
        commands = {"list": self._list, "show": self._show, "redrive": self._redrive}
        return commands[self._options.command]()

    def _list(self) -> int:
        places = self._places()
        if not self._options.queue and not self._options.letters:
            places += self._inbox_if_any()
        found = list(
            summaries(
                self._cloud.sqs, self._queues, places, self._choice, look_at_inbox=self._options.letters
            )
        )
        archived: dict[str, int] = {}
        if self._options.archived:
            for letter in self._archived():
                archived[letter.reason] = archived.get(letter.reason, 0) + 1
        if self._options.json:
            document = {"queues": [summary_document(each) for each in found], "missing": self._queues.missing}
            answer_json(document | ({"archived": archived} if self._options.archived else {}))
            return DONE
        answer(summaries_text(found, time.time_ns() // 1_000_000))
        for address in self._queues.missing:
            say(f"{address} has no queue here: deploy the contract, or name the deployed one with --contract")
        if self._options.archived:
            answer(
                "archived: " + (", ".join(f"{word} {count}" for word, count in archived.items()) or "none")
            )
        return DONE

    def _show(self) -> int:
        found = list(self._letters())
        if self._options.json:
            answer_json([letter_document(each) for each in found])
        else:
            answer("\n\n".join(map(letter_text, found)) or "no such dead letter")
        return DONE if found else INCOMPLETE

    def _redrive(self) -> int:
        options = self._options
        if options.all != self._choice.is_all:
            raise ChoiceError(
                "say which messages go back: ID, --filter EXPRESSION, or --all, which is everything"
            )
        if not (options.queue or options.letters or options.archived):
            raise ChoiceError("say from where: --queue NAME (`list` has the names), --letters or --archived")
        redrive = Redrive(
            self._cloud.sqs, self._queues, self._contract, dry_run=options.dry_run, progress=_progress
        )
        moved = {place.title: redrive.place(place, self._choice) for place in self._places()}
        if options.archived:
            moved["archive"] = redrive.archived(self._archived(), self._choice)
        if options.json:
            answer_json(
                [
                    moved_document(title, done, run=redrive.run, dry_run=options.dry_run)
                    for title, done in moved.items()
                ]
            )
        else:
            answer(
                "\n".join(moved_text(title, done, dry_run=options.dry_run) for title, done in moved.items())
            )
        return (
            DONE
            if any(done.moved for done in moved.values()) and all(map(_is_clean, moved.values()))
            else INCOMPLETE
        )

    def _places(self) -> list[Place]:
        """The queues that the options name; every dead-letter queue, where they name nothing at all."""
        options = self._options
        places = [place_of(each) for each in self._queues.chosen(options.queue)]
        if not options.queue and (options.letters or options.archived) and options.command != "list":
            places = []
        return places + (
            [inbox_place(*letter_inbox(self._contract, self._queues))] if options.letters else []
        )

    def _inbox_if_any(self) -> list[Place]:
        try:
            return [inbox_place(*letter_inbox(self._contract, self._queues))]
        except NoLetterInboxError as error:
            say(str(error))
            return []

    def _letters(self) -> Iterator[Letter]:
        for place in self._places():
            # A look at an empty queue takes a second. The count is approximate: who names one gets the look.
            if not (self._options.queue or self._options.letters or self._queues.counts(place.url)[0]):
                continue

            def more(title: str = place.title) -> None:
                say(f"{title}: only the first {LOOK} messages were looked at")

            yield from waiting_letters(self._cloud.sqs, place, self._choice, more)
        if self._options.archived:
            yield from self._archived()

    def _archived(self) -> Iterator[Letter]:
        days = days_of(self._options, self._cloud)
        uplink = self._contract.device.outbox.address
        yield from filter(self._choice.takes, archived_letters(days, uplink))
        say_damaged(days)


def _is_clean(done: Moved) -> bool:
    return not (done.stay or done.refused or done.twice)


def _progress(moved: int, of: int | None) -> None:
    if of is not None or (moved and moved % _EVERY == 0):
        say(f"{moved} moved" + (f" of about {of}" if of is not None else ""))
