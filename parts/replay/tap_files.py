"""Carry out an order: the steps that a router would have taken, as replays, on the routes it names.

It reads files of the tap, and the contracts that deliveries are owed by, in the archive.
"""

from __future__ import annotations

import gzip
import io
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.contract import Contract, Place, load_compiled
from eventplane.dead_letter import Refusal, dead_letter
from eventplane.envelope import EventKey, sender_in_frame
from eventplane.errors import EventPlaneError
from eventplane.ingest import IngestFrame, frame_text
from eventplane.ledger import CONTRACTS
from eventplane.reasons import REPLAY, Outcome, Reason
from eventplane.values import MAX_TIME_MS, timestamp_of_ms
from lambdas.common.aws import error_code
from lambdas.common.log import logger
from lambdas.common.metrics import Count, count
from lambdas.common.queue import QueueMessage
from lambdas.router.engine import RoutingEngine
from lambdas.router.planner import Planner, Step
from parts.replay.order import OrderError, Owed, OwedOrder, WindowOrder, marked, order_text, parse_order

MAX_KEPT: Final = 10
"""Most planners that are kept. Ours: subscriptions and interest make many contracts a day, and a file of the
tap is owed by few of them."""


class TapFileGoneError(EventPlaneError):
    """The archive has no `file` of this name any more."""

    file: str
    message = "{file} is not in the archive any more; restore an older version of it"


@dataclass(frozen=True, slots=True)
class TapEvent:
    """An event as the tap has it; it expires at `expires_at_ms`, None: never, or nobody said. Times are Unix
    milliseconds."""

    key: EventKey
    text: str
    topic: str
    client_id: str
    accepted_at_ms: int
    expires_at_ms: int | None


class TapFiles:
    """Reads the archive in `bucket` through a boto3 S3 client. What S3 refuses is raised as botocore does."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def events(self, file: str, from_ms: float = -inf, to_ms: float = inf) -> Iterator[TapEvent]:
        """The events of `file` accepted from `from_ms` to before `to_ms`, each once, in its order.

        Raises `TapFileGoneError`, and OSError, EOFError or zlib.error for a file that is damaged.
        """
        seen: set[EventKey] = set()
        packed = _read(self._client, self._bucket, file)
        if packed is None:
            raise TapFileGoneError(file)
        # The packed file is read at once: S3 does not wait while what was read is being sent.
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    event = _event(line)
                    is_within = event is not None and from_ms <= event.accepted_at_ms < to_ms
                except (ValueError, LookupError, TypeError, RecursionError) as error:
                    # The audit has it in its quarantine: nothing is owed of it.
                    logger.warning("a line is no record", file=file, line=number, error=str(error))
                    continue
                # A copy may be within although the first one is not.
                if event is not None and is_within and event.key not in seen:
                    seen.add(event.key)
                    yield event


def _read(client: Any, bucket: str, key: str) -> bytes | None:
    """The content of an object; None where there is none."""
    try:
        body: bytes = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    except ClientError as error:
        if error_code(error) == "NoSuchKey":
            return None
        raise
    return body


def _event(line: bytes) -> TapEvent | None:
    record = json.loads(line)
    text = record["event"]
    if text is None:
        return None
    members, ends_ms = json.loads(text), record.get("expires_at_ms")
    return TapEvent(
        key=(str(sender_in_frame(record["client_id"], members)), members["source"], members["id"]),
        text=text,
        topic=record["topic"],
        client_id=record["client_id"],
        accepted_at_ms=record["accepted_at_ms"],
        expires_at_ms=ends_ms if isinstance(ends_ms, int) and 0 <= ends_ms <= MAX_TIME_MS else None,
    )


class UnknownContractError(EventPlaneError):
    """The archive has no contract of this `version`."""

    version: str
    message = f"the archive has no contract {{version}}; put it there as {CONTRACTS}/{{version}}.json"


class Planners:
    """Planners for what comes over the channel `source`, by the contracts in the archive `bucket`."""

    def __init__(self, client: Any, bucket: str, source: str, cpu_time: Callable[[], float]) -> None:
        self._client = client
        self._bucket = bucket
        self._source = source
        self._cpu_time = cpu_time
        self._kept = lru_cache(MAX_KEPT)(self._made)

    def of(self, version: str) -> Planner:
        """Raises `UnknownContractError`, `ContractError`, and what botocore raises."""
        return self._kept(version)

    def _made(self, version: str) -> Planner:
        name = f"{CONTRACTS}/{version}.json"
        compiled = _read(self._client, self._bucket, name)
        contract = load_compiled(compiled, name) if compiled is not None else None
        if contract is None or contract.version != version:
            raise UnknownContractError(version)
        return Planner(contract, self._source, self._cpu_time)


LETTER_SOURCE: Final = "/eventplane/cloud/replay"
"""The `source` of the dead letters about orders."""


class Orders:
    """Plans the orders of the queue, by the tap's files and the contracts in the archive."""

    def __init__(self, tap: TapFiles, planners: Planners) -> None:
        self._tap = tap
        self._planners = planners

    def steps(self, engine: RoutingEngine, message: QueueMessage, now_ms: int) -> Iterator[Step]:
        """The steps of the order in `message`; `engine` has the contract in force.

        What can never be carried out becomes a dead letter, which has that part of the order. `now_ms` in
        Unix milliseconds.
        """
        try:
            order = parse_order(message.body)
        except OrderError as error:
            yield from _letter(engine, message, message.body, Refusal(Reason.BAD_ORDER, str(error)), now_ms)
            return
        if isinstance(order, OwedOrder):
            yield from self._owed(engine, message, order, now_ms)
        else:
            yield from self._window(engine, message, order, now_ms)

    def _owed(
        self, engine: RoutingEngine, message: QueueMessage, order: OwedOrder, now_ms: int
    ) -> Iterator[Step]:
        found = self._found(order.file, {each.key for each in order.owed})
        missing = [each for each in order.owed if each.key not in found]
        odd: list[Owed] = []
        for (key, version, entered_at_ms), owed in _by_decision(order.owed).items():
            if key in found:
                event = replace(found[key], accepted_at_ms=entered_at_ms)
                try:
                    planned = _planned(self._planners.of(version), message, event, now_ms)
                except UnknownContractError:
                    odd += owed
                    continue
                routes = {each.route for each in owed}
                yield from _chosen(planned, routes, now_ms, with_refusal=True)
                if not _is_refused(planned):
                    odd += [
                        each for each in owed if each.route not in {step.record.route for step in planned}
                    ]
        if missing:
            count(Count.NOT_IN_TAP, len(missing))
            refusal = Refusal(
                Reason.NOT_IN_TAP, f"{len(missing)} deliveries of events that are not in {order.file}"
            )
            yield from _letter(engine, message, _part(order, missing), refusal, now_ms)
        if odd:
            refusal = Refusal(
                Reason.BAD_ORDER, f"{len(odd)} deliveries on routes that their contracts do not give"
            )
            yield from _letter(engine, message, _part(order, odd), refusal, now_ms)

    def _window(
        self, engine: RoutingEngine, message: QueueMessage, order: WindowOrder, now_ms: int
    ) -> Iterator[Step]:
        routes = _routes_of(order, engine.contracts)
        if not routes:
            wanted = f"leads to {order.participant}" if order.participant else f"is called {order.route}"
            refusal = Refusal(
                Reason.DESTINATION_GONE, f"no route of contract {engine.contract.version} {wanted}"
            )
            yield from _letter(engine, message, message.body, refusal, now_ms)
            return
        try:
            for event in self._tap.events(order.file, order.from_ms, order.to_ms):
                planned = _planned(engine.planner, message, event, now_ms)
                yield from _chosen(planned, routes, now_ms, with_refusal=False)
        except TapFileGoneError as error:
            yield from _letter(engine, message, message.body, Refusal(Reason.NOT_IN_TAP, str(error)), now_ms)

    def _found(self, file: str, keys: Collection[EventKey]) -> dict[EventKey, TapEvent]:
        try:
            return {each.key: each for each in self._tap.events(file) if each.key in keys}
        except TapFileGoneError:
            return {}


def _by_decision(
    owed: Iterable[Owed],
) -> dict[tuple[EventKey, str, int], list[Owed]]:
    """What is owed, by what one decision of a router would have settled: event, contract, acceptance."""
    decisions: defaultdict[tuple[EventKey, str, int], list[Owed]] = defaultdict(list)
    for each in owed:
        decisions[each.key, each.contract_version, each.entered_at_ms].append(each)
    return decisions


def _routes_of(order: WindowOrder, contracts: Collection[Contract]) -> set[str]:
    """Return the routes that the order means in one of the contracts in force."""
    participants = (each.participants.get(order.participant or "") for each in contracts)
    inboxes = {each.inbox.address for each in participants if each}
    return {
        each.name
        for contract in contracts
        for each in contract.routes_at(Place.CLOUD)
        if order.route == each.name or each.destination in inboxes
    }


def _planned(planner: Planner, message: QueueMessage, event: TapEvent, now_ms: int) -> list[Step]:
    routed = _as_routed(message, event)
    return list(planner.plan(routed, now_ms, is_replay=True, ends_ms=event.expires_at_ms))


def _as_routed(message: QueueMessage, event: TapEvent) -> QueueMessage:
    """The message in which the ingest rule would have handed the event to the router.

    So the event gets the sender that the router stamps: the device whose connection brought it.
    """
    frame = IngestFrame(event.text.encode("utf-8"), event.topic, event.client_id, "", event.accepted_at_ms)
    return replace(message, body=frame_text(frame))


def _chosen(
    planned: list[Step], routes: Collection[str], now_ms: int, *, with_refusal: bool
) -> Iterator[Step]:
    if _is_refused(planned):
        # Only who is owed a decision gets it: in a window the router has long told of its refusals.
        yield from planned if with_refusal else ()
        return
    for step in planned:
        if step.record.route not in routes:
            continue
        if step.event is None:
            yield step
        else:
            yield replace(step, record=replace(step.record, reason=REPLAY), event=marked(step.event, now_ms))


def _is_refused(planned: Iterable[Step]) -> bool:
    refused = (Outcome.DEAD_LETTERED, Outcome.DROPPED)
    return any(step.record.route is None and step.record.outcome in refused for step in planned)


def _part(order: OwedOrder, owed: Iterable[Owed]) -> str:
    return order_text(OwedOrder(order.file, tuple(owed)))


def _letter(
    engine: RoutingEngine, message: QueueMessage, order: str, refusal: Refusal, now_ms: int
) -> Iterator[Step]:
    letter = dead_letter(
        id=f"{message.id}.{refusal.reason}",
        source=LETTER_SOURCE,
        time=timestamp_of_ms(now_ms),
        refusal=refusal,
        channel=REPLAY,
        original=order.encode("utf-8", "surrogatepass"),
        contract_version=engine.contract.version,
        attempt=message.attempt,
    )
    return engine.planner.letter(message, letter, now_ms)
