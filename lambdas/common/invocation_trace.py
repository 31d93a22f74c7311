"""The trace of the invocation itself, which AWS X-Ray has: a link of the many events in it, no parent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "_X_AMZN_TRACE_ID"
"""Where Lambda's runtime puts the tracing header of the invocation under way (AWS Lambda guide)."""

_ROOT = re.compile(r"1-([0-9a-f]{8})-([0-9a-f]{24})")
_PARENT = re.compile(r"[0-9a-f]{16}")


def invocation_links(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """(trace id, span id) of the invocation under way; nothing where X-Ray does not draw it."""
    header = environment.get(VARIABLE, "")
    fields = dict(part.partition("=")[::2] for part in header.split(";"))
    root, parent = _ROOT.fullmatch(fields.get("Root", "")), _PARENT.fullmatch(fields.get("Parent", ""))
    if fields.get("Sampled") != "1" or root is None or parent is None:
        return ()
    return ((root[1] + root[2], parent[0]),)
