"""The `traceparent` of W3C Trace Context, which the distributed tracing extension of CloudEvents carries."""

from __future__ import annotations

from typing import Final

DEFAULT_SHARE: Final = 0.01
"""Of the events that carry no trace, so many are drawn. Ours: a thousand events a second make ten traces."""
