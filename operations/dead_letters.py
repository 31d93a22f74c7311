"""Count, show and send back dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import Contract
from eventplane.ledger import LedgerRecord, ledger_texts, to_line
from eventplane.resource_names import FIFO_SUFFIX
from eventplane.sqs_binding import REDRIVEN, hint_of, redrive_in
from operations.cloud import was_repeated
from operations.command import ChoiceError
from operations.errors import MoveFailedError, MoveUnseenError
from operations.letters import UNKNOWN, Letter, LetterKind, read_letter
from operations.mover import Decide, Moved, move
from operations.outgoing import Outgoing, Redriving, Skipped, again, is_inbox, original
from operations.places import Choice, LetterPlace, waiting_letters
from operations.queues import PlaneQueues
from operations.reading import UNSEEN, Message

_UNAVAILABLE: Final = frozenset(
    {
        "InvalidAction",
        "UnknownOperationException",
        "UnsupportedOperation",
        "AWS.SimpleQueueService.UnsupportedOperation",
        "AccessDenied",
        "AccessDeniedException",
    }
)
_REPEATED_MS: Final = 60_000
"""Longest time between a start whose answer was lost and its repeat, milliseconds. Ours: several attempts of
`operations.cloud`."""

_POLL_S: Final = 2.0
_PATIENCE: Final = 30
"""Looks that may find no move at all: SQS lists one that it took a little later."""


def move_all(
    sqs: Any,
    queue: str,
    arn: str,
    *,
    progress: Callable[[int, int | None], None],
    sleep: Callable[[float], None],
) -> int | None:
    """Have SQS move every message of the queue `arn` back; how many it moved, about, or None if it does not
    offer that. `progress` gets (moved, of about all). Raises `MoveFailedError`, `MoveUnseenError`."""
    try:
        started = sqs.start_message_move_task(SourceArn=arn)
    except ClientError as error:
        started, code = error.response, str(error.response.get("Error", {}).get("Code"))
        if code not in _UNAVAILABLE:
            raise
        # SQS refuses a second task: the one that runs does the same, or is ours and its answer was lost.
        refuses = code.endswith("UnsupportedOperation")
        if not (refuses and (was_repeated(started) or _is_running(sqs, arn))):
            return None
    handle = started.get("TaskHandle")
    unlisted = 0
    while True:
        try:
            tasks = sqs.list_message_move_tasks(SourceArn=arn, MaxResults=10).get("Results", [])
        except (ClientError, BotoCoreError) as error:
            raise MoveUnseenError(queue, str(error)) from error
        unlisted = 0 if tasks else unlisted + 1
        if unlisted > _PATIENCE:
            raise MoveUnseenError(queue, "SQS does not list the move")
        # Only a running task is listed with its handle; the newest is listed first.
        at = next((at for at, each in enumerate(tasks) if handle and each.get("TaskHandle") == handle), 0)
        task, *before = tasks[at : at + 2] or [{}]
        # The first of two starts may have ended before the second.
        ours = [task, *(each for each in before if was_repeated(started) and _is_recent(each, task))]
        moved = sum(int(each.get("ApproximateNumberOfMessagesMoved", 0)) for each in ours)
        status = task.get("Status")
        if status == "COMPLETED":
            return moved
        if status in ("FAILED", "CANCELLED"):
            raise MoveFailedError(queue, str(task.get("FailureReason", status)))
        progress(moved, task.get("ApproximateNumberOfMessagesToMove"))
        sleep(_POLL_S)


def _is_running(sqs: Any, arn: str) -> bool:
    try:
        tasks = sqs.list_message_move_tasks(SourceArn=arn, MaxResults=1).get("Results", [])
    except (ClientError, BotoCoreError):
        return False
    return any(each.get("Status") == "RUNNING" for each in tasks)


def _is_recent(before: Mapping[str, Any], task: Mapping[str, Any]) -> bool:
    return int(task.get("StartedTimestamp", 0)) - int(before.get("StartedTimestamp", 0)) < _REPEATED_MS


@dataclass(slots=True)
class Summary:
    """The messages at one place. `waiting` and `hidden` are SQS's own approximate counts; the rest is of the
    messages that were looked at: `looked` is None if none was.
    """

    title: str
    name: str
    waiting: int
    hidden: int
    looked: int | None = None
    oldest_ms: int | None = None
    reasons: Counter[str] = field(default_factory=Counter)
    senders: Counter[str] = field(default_factory=Counter)
    has_more: bool = False


def summaries(
    sqs: Any, queues: PlaneQueues, places: Iterable[LetterPlace], choice: Choice
) -> Iterator[Summary]:
    """A summary of each place. An inbox is only counted: what waits there is its reader's."""
    for place in places:
        summary = Summary(place.title, place.name, *queues.counts(place.url))
        if summary.waiting and place.dead_letters:
            _look(sqs, place, choice, summary)
        yield summary


def _look(sqs: Any, place: LetterPlace, choice: Choice, summary: Summary) -> None:
    def more(_: str) -> None:
        summary.has_more = True

    summary.looked = 0
    for letter in waiting_letters(sqs, place, choice, more):
        summary.looked += 1
        summary.reasons[letter.reason] += 1
        summary.senders[str(letter.sender or UNKNOWN)] += 1
        summary.oldest_ms = min(summary.oldest_ms or letter.since_ms, letter.since_ms)


@dataclass(frozen=True)
class Redrive:
    """Sends letters back. `run` names this run in the messages; the clock gives Unix milliseconds.

    `sent` has the decisions and the ids of the dead letters of this run, to recognise what has failed again,
    `filed` the contracts that the ledger's writer has from it.
    """

    sqs: Any
    queues: PlaneQueues
    contract: Contract
    dry_run: bool
    progress: Callable[[int, int | None], None]
    run: str
    clock: Callable[[], int]
    sleep: Callable[[float], None]
    sent: set[str] = field(default_factory=set)
    filed: set[str] = field(default_factory=set)

    def place(self, place: LetterPlace, choice: Choice) -> Moved:
        """Send back the selected messages at `place`. SQS itself moves a whole dead-letter queue, where it
        offers that.

        Not one of an inbox: SQS marks nothing, so the reader would know its events and drop them, and a FIFO
        queue would drop what it was given within the last five minutes.
        """
        if self._moves_whole(place) and choice.is_all and not self.dry_run:
            arn = self.sqs.get_queue_attributes(QueueUrl=place.url, AttributeNames=["QueueArn"])
            moved = move_all(
                self.sqs, place.name, arn["Attributes"]["QueueArn"], progress=self.progress, sleep=self.sleep
            )
            if moved is not None:
                return Moved(moved)
        others: list[str] = []
        done = move(
            self.sqs,
            place.url,
            self._decide(place, choice, others),
            dry_run=self.dry_run,
            record=self._record,
            progress=lambda done: self.progress(done.moved, None),
        )
        done.others = len(others)
        return done

    def _moves_whole(self, place: LetterPlace) -> bool:
        url = place.dead_letters and place.dead_letters.source_url
        return bool(url) and not (str(url).endswith(FIFO_SUFFIX) or is_inbox(self.contract, place.channel))

    def _record(self, records: Sequence[LedgerRecord]) -> None:
        """Have the ledger's writer file `records`, for trace and audit, and once the contract they name.

        No router may have decided by it: where there are subscriptions, they go by what these make of it.
        """
        if records and self.queues.ledger_url:
            contracts = {} if self.filed else {self.contract.version: self.contract.canonical}
            for text, _ in ledger_texts([to_line(each) for each in records], contracts):
                self.sqs.send_message(QueueUrl=self.queues.ledger_url, MessageBody=text)
            self.filed.update(contracts)

    def archived(self, letters: Iterable[Letter], choice: Choice) -> Moved:
        """Send the originals of the selected ones of the archive's `letters`; the archive stays as it is."""
        if choice.is_all:
            raise ChoiceError(
                "the archive keeps what was redriven long ago as well; choose by ID or --filter"
            )
        done = Moved()
        for letter in letters:
            outgoing = original(letter, self._redriving)
            if isinstance(outgoing, Skipped):
                done.stay[letter.id] = outgoing.reason
            elif self.dry_run:
                done.moved += 1
            else:
                self.sqs.send_message(QueueUrl=outgoing.url, **outgoing.entry)
                self._record(outgoing.records)
                done.moved += 1
        return done

    @property
    def _redriving(self) -> Redriving:
        return Redriving(self.run, self.clock(), self.contract, self.queues)

    def _decide(self, place: LetterPlace, choice: Choice, others: list[str]) -> Decide:
        def decide(message: Message) -> Outgoing | Skipped | None:
            letter = read_letter(message, place.name, place.channel)
            is_letter = letter.kind is LetterKind.DEAD_LETTER
            if place.dead_letters is None and not is_letter:
                others.append(letter.id)
                return None  # the inbox's other events are its reader's
            if not choice.takes(letter):
                return None
            name = hint_of(message, REDRIVEN) or letter.id if place.dead_letters else letter.events[0].id
            if self.sent & {name, redrive_in(name)}:
                return None  # it failed again at once, and is left to the next run: this one has to end
            redriving = self._redriving
            mark = redriving.mark(letter)
            self.sent.update((name, redrive_in(mark)))
            if place.dead_letters is None:
                return original(letter, redriving)
            if place.dead_letters.source_url is None:
                return Skipped(
                    f"the queue {place.dead_letters.source} is gone; its participant has left the contract"
                )
            outgoing = again(message, place.dead_letters.source_url, mark)
            # Of a dead letter itself, not of the original in it.
            events = letter.events[:1] if is_letter else letter.events
            return replace(outgoing, records=redriving.records(letter, place.channel, events))

        return decide


def outcome(done: Moved) -> Sequence[tuple[str, int]]:
    """The counts of a run that are not 0, in words."""
    words = [
        ("moved", done.moved),
        ("left: not chosen", done.left - done.others),
        ("left: other events", done.others),
        ("left: cannot go back", len(done.stay)),
        ("left: refused by SQS", len(done.refused)),
        ("sent, and not deleted: it will be sent again", done.twice),
        (UNSEEN, done.unseen),
    ]
    return [each for each in words if each[1]] or [("moved", 0)]
