"""The state that a test left in the fakes of AWS, without random or counted values of a run."""

import gzip
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from eventplane.errors import EventPlaneError
from eventplane.ledger import parse_ledger_text
from eventplane.records import REVISION
from eventplane.sqs_binding import split
from eventplane_aws.tables import WRITER
from tests.fakes.client import ScriptedClient

_DRAWN: Final = re.compile(
    r"""[0-9a-f]{8}[0-9a-f-]*|\d{5,}|\d{4}-\d\d-\d\d[T ][\d:.]+Z?|/[0-9a-f]{2}\b"""
    r"""|\bb'(\\.|[^'])*'|\bb"(\\.|[^"])*\""""
)
"""Ids, numbers, times, a digest's first byte in a key, bytes."""


def state_of(fakes: Iterable[Any]) -> list[str]:
    """Return the content of `fakes`: a text for each message, item, object and certificate."""
    own = (each for each in fakes if each.service in _READERS and not isinstance(each, ScriptedClient))
    return sorted(_DRAWN.sub("#", text) for each in own for text in _READERS[each.service](each))


def _messages(sqs: Any) -> set[str]:
    """Return the messages of all queues, each once: a standard queue delivers one at least once."""
    return {
        f"{queue.name}: {text}"
        for queue in sqs.queues.values()
        for each in queue.messages
        for text in _texts(each.body)
    }


def _texts(body: str) -> list[str]:
    for read in (lambda: parse_ledger_text(body).lines, lambda: split(body)):
        with suppress(EventPlaneError):
            return list(read())
    return [body]


def _items(dynamodb: Any) -> Iterator[str]:
    for table in dynamodb.list_tables()["TableNames"]:
        for item in dynamodb.items(table):
            kept = sorted(each for each in item.items() if each[0] not in (REVISION, WRITER))
            yield f"{table}: {kept}"


def _objects(s3: Any) -> Iterator[str]:
    for bucket, objects in s3.buckets.items():
        for key, each in objects.items():
            body = gzip.decompress(each.body) if key.endswith(".gz") else each.body
            yield f"{bucket}: {key}: {body.decode(errors='replace')}"


def _certificates(iot: Any) -> Iterator[str]:
    yield from (f"thing {thing}: {len(ids)}" for thing, ids in iot.attached.items())
    # One that is inactive, and that no thing and no policy has, is of no use to anybody.
    held = str([*iot.attached.values(), *iot.policies.values()])
    yield from (
        f"certificate: {each}" for id, each in iot.statuses.items() if each != "INACTIVE" or id in held
    )
    yield from (f"policy {name}: {len(ids)}" for name, ids in iot.policies.items())


_READERS: Final = {"sqs": _messages, "dynamodb": _items, "s3": _objects, "iot": _certificates}
