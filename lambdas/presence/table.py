"""The table of devices in DynamoDB: an item each, written on condition, and an index of what is due."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from eventplane.envelope import parse_event
from eventplane.errors import EnvelopeError
from eventplane.fleet import bucket_of
from eventplane.traffic import Traffic
from lambdas.common.log import logger
from lambdas.common.tables import is_done
from lambdas.presence.state import (
    DeviceState,
    Flood,
    Heartbeat,
    Incident,
    Level,
    Line,
    Quiet,
    QuietReason,
    Sighting,
)

PAGE: Final = 100
"""Devices read at a time: as many as one BatchGetItem takes (DynamoDB API Reference)."""

INDEX: Final = "due"
"""The index by `bucket` and `due_ms`. It is sparse: what is not due at any time does not stand in it."""

_ROUNDS: Final = 3


class PresenceTable:
    """Reads and writes through a boto3 DynamoDB client. What AWS refuses is raised as botocore raises it."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name

    def read(self, devices: Iterable[str]) -> dict[str, DeviceState]:
        """The states of up to `PAGE` different devices; a new one for a device that is not known.

        Consistent. Left out are devices that DynamoDB does not get to, and those whose items are unreadable.
        """
        names = set(devices)
        waiting: dict[str, Any] = {
            self._name: {"Keys": [_key(name) for name in sorted(names)], "ConsistentRead": True}
        }
        states: dict[str, DeviceState] = {}
        for _ in range(_ROUNDS):
            answer = self._client.batch_get_item(RequestItems=waiting)
            for item in answer["Responses"].get(self._name, []):
                name = item["device"]["S"]
                try:
                    states[name] = _state(item)
                except (ValueError, LookupError, TypeError, AttributeError, EnvelopeError):
                    logger.exception("unreadable item; correct it or delete it", device=name)
                    names.discard(name)
            waiting = answer.get("UnprocessedKeys") or {}
            if not waiting:
                break
        left = {key["device"]["S"] for each in waiting.values() for key in each["Keys"]}
        unknown = names - left - states.keys()
        return states | {name: DeviceState(name) for name in unknown}

    def write(self, state: DeviceState, due_ms: int | None) -> DeviceState | None:
        """Write the successor of the stored state; what is stored now, or None when another was faster."""
        stored = replace(state, revision=state.revision + 1, due_ms=due_ms)
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(device)"}
        if state.revision:
            condition = {
                "ConditionExpression": "revision = :known",
                "ExpressionAttributeValues": {":known": {"N": str(state.revision)}},
            }
        request = {"TableName": self._name, "Item": _item(stored), **condition}
        return stored if is_done(self._client.put_item, request) else None

    def due(self, bucket: int, now_ms: int) -> Iterator[list[str]]:
        """The devices of `bucket` that are due at `now_ms` (Unix milliseconds), a page at a time.

        The index lags a little behind the table: look at the device before believing it.
        """
        position: dict[str, Any] = {}
        while True:
            answer = self._client.query(
                TableName=self._name,
                IndexName=INDEX,
                KeyConditionExpression="#bucket = :bucket AND due_ms <= :now",
                ExpressionAttributeNames={"#bucket": "bucket"},  # a reserved word
                ExpressionAttributeValues={":bucket": {"N": str(bucket)}, ":now": {"N": str(now_ms)}},
                Limit=PAGE,
                **position,
            )
            if names := [item["device"]["S"] for item in answer["Items"]]:
                yield names
            if "LastEvaluatedKey" not in answer:
                return
            position = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}


def _key(device: str) -> dict[str, Any]:
    return {"device": {"S": device}}


def _item(state: DeviceState) -> dict[str, Any]:
    known = {
        name: value
        for name, value in asdict(state).items()
        if name not in ("device", "revision", "due_ms") and value
    }
    item = _key(state.device) | {
        "revision": {"N": str(state.revision)},
        "known": {"S": json.dumps(known, ensure_ascii=False, separators=(",", ":"))},
    }
    if state.due_ms is not None:
        item |= {"bucket": {"N": str(bucket_of(state.device))}, "due_ms": {"N": str(state.due_ms)}}
    return item


def _state(item: Mapping[str, Any]) -> DeviceState:
    known = json.loads(item["known"]["S"])
    sighting, heartbeat = known.get("sighting"), known.get("heartbeat")
    quiet, incident = known.get("quiet"), known.get("incident")
    traffic, flood = known.get("traffic"), known.get("flood")
    return DeviceState(
        device=item["device"]["S"],
        revision=int(item["revision"]["N"]),
        due_ms=int(item["due_ms"]["N"]) if "due_ms" in item else None,
        sighting=Sighting(**sighting | {"line": Line(sighting["line"])}) if sighting else None,
        heartbeat=Heartbeat(**heartbeat) if heartbeat else None,
        reported=Line(known["reported"]) if "reported" in known else None,
        reported_ms=known.get("reported_ms", 0),
        quiet=Quiet(QuietReason(quiet["reason"]), quiet["since_ms"]) if quiet else None,
        incident=Incident(**incident | {"level": Level(incident["level"])}) if incident else None,
        traffic=Traffic(**traffic) if traffic else None,
        flood=Flood(**flood) if flood else None,
        unsent=tuple(parse_event(each).json for each in known.get("unsent", ())),
        is_gone=bool(known.get("is_gone")),
    )
