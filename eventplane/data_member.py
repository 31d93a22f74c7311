"""An event's data as bytes, and bytes as the data of an event in JSON format, which keeps them untouched.

JSON stands in `data` as it is, all else in `data_base64` (CloudEvents JSON format, section 3.1).
"""

from __future__ import annotations

import base64
import json

from eventplane import strict_json
from eventplane.envelope import Envelope, EnvelopeError
from eventplane.members import member_spans

ASSUMED = "application/json"
"""What `data` is where the event has no datacontenttype (CloudEvents JSON format, section 3.1)."""


def is_json(content_type: str | None) -> bool:
    """Whether data of `content_type` is JSON: a subtype of `json`, or one that ends in `+json`."""
    subtype = (content_type or "").partition(";")[0].partition("/")[2].strip().lower()
    return subtype == "json" or subtype.endswith("+json")


def with_data(members: str, content_type: str | None, data: bytes) -> str:
    """`members`, an event without data in JSON format, and its `data`. Raises `EnvelopeError`."""
    if not data:
        return members
    if not is_json(content_type):
        return _with_member(members, "data_base64", f'"{base64.b64encode(data).decode()}"')
    try:
        text = strict_json.decode_text(data)
        # By itself: within the event, `1,"subject":"x"` would be data and an attribute.
        strict_json.loads(text)
    except strict_json.StrictJsonError as error:
        raise EnvelopeError(error.reason, f"the data, {content_type}: {error.detail}") from error
    return _with_member(members, "data", text)


def data_of(event: Envelope) -> tuple[bytes, str | None]:
    """The data of `event` and the content type that goes with it; no bytes where it has no data.

    Raises `EnvelopeError` (`data_not_text`) where the data contradicts its content type.
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
            "data_not_text", f"data of {content_type} is a JSON string; send JSON as application/json"
        )
    return value.encode("utf-8"), content_type


def _with_member(members: str, name: str, value: str) -> str:
    head = members.rstrip()[:-1]
    return f'{head}{"," if len(head) > 1 else ""}"{name}":{value}}}'
