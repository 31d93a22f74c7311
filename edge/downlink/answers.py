"""The device's answers to what came down, many in one report."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from edge.reports import Heading
from eventplane.downlink.acknowledgements import ACKNOWLEDGED, Acknowledgement, to_data
from eventplane.envelope import Envelope, EnvelopeError

_log = logging.getLogger(__name__)

ANSWER_BYTES = 500
"""What one answer usually takes in the spool."""

_MOST_CHARACTERS = 32 * 1024
"""Of what their senders and the device wrote into the answers of one event: it has to fit one."""


def answer_events(
    answers: Sequence[Acknowledgement], thing: str, epoch: str, first: int, time: str
) -> Iterator[Envelope]:
    """The events that tell `answers`, for the sequences from `first` on."""
    number = first
    for some in _parts(answers):
        try:
            event = Heading(thing, epoch, number, time).write(ACKNOWLEDGED, to_data(some, epoch))
        except EnvelopeError as error:
            # One alone that names an event as long as an event may be. The cloud parks what gets no answer.
            _log.error("%d answer(s) to the cloud cannot be written: %s", len(some), error)
            continue
        number += 1
        yield event


def _parts(answers: Iterable[Acknowledgement]) -> Iterator[list[Acknowledgement]]:
    part: list[Acknowledgement] = []
    size = 0
    for each in answers:
        written = ANSWER_BYTES + len(each.source) + len(each.id) + len(each.detail)
        if part and size + written > _MOST_CHARACTERS:
            yield part
            part, size = [], 0
        part.append(each)
        size += written
    if part:
        yield part
