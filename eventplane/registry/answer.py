"""An answer of the registry, before it is HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

JSON: Final = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """The JSON value `body` of `content_type`, and the `headers` that go with it."""

    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON
