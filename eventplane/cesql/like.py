"""The patterns of LIKE (section 3.4.3): `%` is any text, `_` one character, a backslash quotes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache


class Wildcard(Enum):
    ONE = "_"
    MANY = "%"


Pattern = tuple[str | Wildcard, ...]
"""Literal texts and wildcards in turn; no two texts and no two MANY stand side by side."""

# Any other backslash is a character like all others, as the conformance cases have it.
_PIECE = re.compile(r"\\[%_]|[%_]|[^\\%_]+|\\", re.DOTALL)


def read(pattern: str) -> Pattern:
    """The pattern taken apart."""
    pieces: list[str | Wildcard] = []
    for piece in _PIECE.findall(pattern):
        if piece in ("%", "_"):
            wildcard = Wildcard(piece)
            if wildcard is Wildcard.ONE or pieces[-1:] != [Wildcard.MANY]:
                pieces.append(wildcard)
            continue
        text = piece[-1] if piece[-1] in "%_" else piece
        if pieces and isinstance(pieces[-1], str):
            pieces[-1] += text
        else:
            pieces.append(text)
    return tuple(pieces)


@lru_cache(maxsize=4096)
def matcher(pattern: str) -> Callable[[str], object]:
    """A function of a text that gives something true when the text matches."""
    return re.compile(regex(pattern), re.DOTALL).fullmatch


def regex(pattern: str) -> str:
    """`pattern` as a regular expression of Python and of Java, for the whole text, a dot being any character.

    Its time is bounded by the product of both lengths: what `%` has found once is an atomic group, so nothing
    is searched twice. The first place where a part fits is as good as any later one.
    """
    parts: list[str] = [""]
    for piece in read(pattern):
        if piece is Wildcard.MANY:
            parts.append("")
        else:
            parts[-1] += "." if isinstance(piece, Wildcard) else re.escape(piece)
    first, *middle, last = parts if len(parts) > 1 else [parts[0], ""]
    tail = f".*{last}" if len(parts) > 1 else ""
    found = "".join(f"(?>.*?{part})" for part in middle)
    return first + found + tail
