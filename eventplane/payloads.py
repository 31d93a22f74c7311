"""The data of events, and its check by the contract's JSON Schemas, whose library is passed in."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from eventplane import strict_json
from eventplane.contract import Contract, Downlink, SchemaCheck
from eventplane.dead_letter import Refusal
from eventplane.envelope import Envelope
from eventplane.errors import EnvelopeError
from eventplane.reasons import Reason
from eventplane.strict_json import member_spans

ASSUMED: Final = "application/json"
"""The type of `data` in an event without datacontenttype (CloudEvents JSON format, section 3.1)."""

_QUOTED: Final = 200
"""Most characters of a path, and of a message, in a refusal's detail: both may quote the payload."""


def schemas_of(contract: Contract) -> dict[str, Mapping[str, Any]]:
    """Return the JSON Schemas of all types of events, by `$id`."""
    return {id: schema for each in contract.event_types.values() for id, schema in each.schemas.items()}


def payload_refusal(
    contract: Contract, event: Envelope, problem_of: Callable[[Envelope, str], str | None]
) -> Refusal | None:
    """Return why the cloud refuses the payload of `event`, or None.

    `problem_of` gives what is wrong with an event by the schema of a `$id`.
    """
    event_type = contract.event_types.get(event.type)
    if event_type is None or event_type.schema_check is SchemaCheck.NONE:
        return None
    if _is_empty_deletion(contract, event):
        return None
    named = event.attributes.get("dataschema")
    id = next(iter(event_type.schemas)) if named is None else str(named)
    if id not in event_type.schemas:
        if event_type.schema_check is SchemaCheck.KNOWN:
            return None
        known = ", ".join(event_type.schemas)
        return Refusal(Reason.UNKNOWN_DATASCHEMA, f"{_short(id)} is none of the contract's: {known}")
    problem = problem_of(event, id)
    return Refusal(Reason.PAYLOAD_INVALID, f"{problem} (schema {id})") if problem else None


def _is_empty_deletion(contract: Contract, event: Envelope) -> bool:
    """Whether `event` removes a state, and so has no payload; what is wrong with it the downlink says."""
    if contract.downlink(event.type) is not Downlink.STATE or "statedelete" not in event.attributes:
        return False
    return not {"data", "data_base64"} & {name for name, _, _ in strict_json.member_spans(event.json)}


def payload_problem(event: Envelope, validator: Any) -> str | None:
    """Return the first fault that a validator of JSON Schema finds in the payload, and where."""
    try:
        data, content_type = data_of(event)
        if content_type is not None and not is_json(content_type):
            return f"data of {_short(content_type)} is not JSON, which the schema speaks of"
        if not data:
            return "there is no data"
        value = strict_json.loads(strict_json.decode_text(data))
        error = next(validator.iter_errors(value), None)
    except EnvelopeError as refused:
        return f"the data is not JSON: {refused.detail}"
    except RecursionError:
        return "it is nested too deeply for its schema"
    except ArithmeticError:
        return "it has a number that is too large to check"
    return None if error is None else f"{_short(error.json_path)}: {_short(error.message)}"


def _short(text: str) -> str:
    """Both ends of a long text: a message begins with the value and ends with what is wrong with it."""
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED // 2]} ... {text[-_QUOTED // 2 :]}"


def is_json(content_type: str | None) -> bool:
    """Return whether data of `content_type` is JSON: a subtype of `json`, or one that ends in `+json`."""
    subtype = (content_type or "").partition(";")[0].partition("/")[2].strip().lower()
    return subtype == "json" or subtype.endswith("+json")


def data_of(event: Envelope) -> tuple[bytes, str | None]:
    """Return the data of `event` and its content type; no bytes if it has no data.

    Raises `EnvelopeError` (`data_not_text`) if the data contradicts its content type.
    """
    declared = event.attributes.get("datacontenttype")
    content_type = None if declared is None else str(declared)
    texts = {name: event.json[start:end] for name, start, end in member_spans(event.json)}
    if "data_base64" in texts:
        return base64.b64decode(json.loads(texts["data_base64"])), content_type
    if "data" not in texts:
        return b"", content_type
    if content_type is None or is_json(content_type):
        return texts["data"].encode("utf-8"), content_type or ASSUMED
    value = json.loads(texts["data"])
    if not isinstance(value, str):
        raise EnvelopeError(
            Reason.DATA_NOT_TEXT,
            f"data of {content_type} must be a JSON string; send JSON as application/json",
        )
    return value.encode("utf-8"), content_type
