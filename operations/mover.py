"""Move messages back: send first, delete afterwards, so that a message is always in at least one queue.

A run that is killed in between leaves a message in both queues: the next run sends it a second time, with the
mark of the same decision, so that its reader drops it as a duplicate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.ledger import LedgerRecord
from eventplane.resource_names import FIFO_SUFFIX
from eventplane_aws.rules import SQS_BATCH, SQS_BATCH_BYTES
from operations.outgoing import Outgoing, Skipped
from operations.reading import Message, Peek

_HOLD_S: Final = 900
"""How long messages that are not chosen stay hidden, seconds, so that the others show first. Ours: time for
about the 120,000 that SQS lets be in flight."""

Decide = Callable[[Message], Outgoing | Skipped | None]
"""What becomes of a message: it goes back, it would but cannot, or (None) it was not meant."""


@dataclass(slots=True)
class Moved:
    """The result of a run: messages `moved` (or, in a dry run, that would move), `left` as not meant.

    `others` of these are no dead letters. Some `stay` with the reason by message id, SQS `refused` some with
    its code, and `twice` were sent, and still are there. About `unseen` messages were not looked at.
    """

    moved: int = 0
    left: int = 0
    others: int = 0
    stay: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    twice: int = 0
    unseen: int = 0


def move(
    sqs: Any,
    url: str,
    decide: Decide,
    *,
    dry_run: bool,
    record: Callable[[Sequence[LedgerRecord]], None],
    progress: Callable[[Moved], None],
) -> Moved:
    """Move the messages of the queue at `url` as `decide` says, and `record` what was sent into inboxes."""
    done = Moved()
    with Peek(sqs, url, _HOLD_S) as reading:
        for page in reading.pages():
            going: list[tuple[Message, Outgoing]] = []
            for message in page:
                decided = decide(message)
                if decided is None:
                    done.left += 1
                elif isinstance(decided, Skipped):
                    done.stay[message["MessageId"]] = decided.reason
                else:
                    going.append((message, decided))
            if dry_run:
                done.moved += len(going)
                continue
            if not _page(sqs, reading, going, done, record):
                return done
            progress(done)
        done.unseen = reading.unseen
    return done


def _page(
    sqs: Any,
    reading: Peek,
    going: Sequence[tuple[Message, Outgoing]],
    done: Moved,
    record: Callable[[Sequence[LedgerRecord]], None],
) -> bool:
    """Send and delete one page; whether to go on: in FIFO queues a later message must not overtake."""
    for batch in _batches(going):
        url = batch[0][1].url
        entries = [{"Id": str(at), **outgoing.entry} for at, (_, outgoing) in enumerate(batch)]
        answer = _send(sqs, url, entries)
        # Taken is only what SQS names as taken.
        taken = {each["Id"] for each in answer.get("Successful", [])}
        codes = {each["Id"]: str(each["Code"]) for each in answer.get("Failed", [])}
        sent = [each for at, each in enumerate(batch) if str(at) in taken]
        for at, (message, _) in enumerate(batch):
            if str(at) not in taken:
                done.refused[message["MessageId"]] = codes.get(str(at), "no answer")
        if sent:
            try:
                record([each for _, outgoing in sent for each in outgoing.records])
            finally:  # what is sent and stays would be sent again
                done.twice += len(reading.delete([message for message, _ in sent]))
            done.moved += len(sent)
        if len(sent) < len(batch) and url.endswith(FIFO_SUFFIX):
            return False
    return True


def _send(sqs: Any, url: str, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Send `entries`, in halves where SQS finds them too long together, and return what became of each."""
    try:
        answer: Mapping[str, Any] = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    except ClientError as error:
        # The query protocol and the JSON one spell it differently.
        code = error.response["Error"]["Code"].rpartition(".")[2]
        if code != "BatchRequestTooLong":
            raise
        if not (half := len(entries) // 2):
            return {"Failed": [{"Id": each["Id"], "Code": code} for each in entries]}
        parts = _send(sqs, url, entries[:half]), _send(sqs, url, entries[half:])
        return {name: [e for part in parts for e in part.get(name, ())] for name in ("Successful", "Failed")}
    return answer


def _batches(going: Sequence[tuple[Message, Outgoing]]) -> Iterator[list[tuple[Message, Outgoing]]]:
    """Cut into what one SendMessageBatch takes: one queue, its size, and of FIFO queues one at a time."""
    batch: list[tuple[Message, Outgoing]] = []
    size = 0
    for each in sorted(going, key=lambda pair: pair[1].url):
        outgoing = each[1]
        most = 1 if outgoing.url.endswith(FIFO_SUFFIX) else SQS_BATCH.most
        other = batch and (batch[0][1].url != outgoing.url or size + outgoing.bytes > SQS_BATCH_BYTES.most)
        if len(batch) == most or other:
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += outgoing.bytes
    if batch:
        yield batch
