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


def parts(pattern: str) -> tuple[Pattern, ...]:
    """What stands between the `%` of a pattern; the first and the last part may be empty."""
    found: list[list[str | Wildcard]] = [[]]
    for piece in read(pattern):
        if piece is Wildcard.MANY:
            found.append([])
        else:
            found[-1].append(piece)
    return tuple(map(tuple, found))


@lru_cache(maxsize=4096)
def matcher(pattern: str) -> Callable[[str], bool]:
    """A function that reports whether a text matches.

    The ends are compared in place and each part between is searched for once, from the end of the one before:
    the first place where a part fits is as good as any later one.
    """
    first, *others = map(_Part, parts(pattern))
    if not others:
        return lambda text: len(text) == first.length and first.fits(text, 0)
    *middle, last = others
    least = first.length + last.length

    def matches(text: str) -> bool:
        end = len(text) - last.length
        if len(text) < least or not first.fits(text, 0) or not last.fits(text, end):
            return False
        at = first.length
        for part in middle:
            found = part.find(text, at, end)
            if found < 0:
                return False
            at = found + part.length
        return True

    return matches


class _Part:
    """A part of a pattern without `%`: all texts that fit it have the same `length`, characters."""

    __slots__ = ("find", "fits", "length")

    def __init__(self, pieces: Pattern) -> None:
        self.length = sum(1 if isinstance(each, Wildcard) else len(each) for each in pieces)
        self.find: Callable[[str, int, int], int]
        """The first place of the part in a text between two places, -1 if there is none."""
        self.fits: Callable[[str, int], bool]
        """Whether the part stands at a place of a text that is long enough for it."""
        if Wildcard.ONE not in pieces:
            literal = "".join(each for each in pieces if isinstance(each, str))
            self.find = lambda text, start, end: text.find(literal, start, end)
            self.fits = lambda text, at: text.startswith(literal, at)
            return
        compiled = re.compile(_expression(pieces), re.DOTALL)

        def find(text: str, start: int, end: int) -> int:
            found = compiled.search(text, start, end)
            return found.start() if found else -1

        self.find = find
        self.fits = lambda text, at: compiled.match(text, at) is not None


def _expression(pieces: Pattern) -> str:
    return "".join("." if isinstance(each, Wildcard) else re.escape(each) for each in pieces)


def regex(pattern: str) -> str:
    """`pattern` as a regular expression of Python and of Java, for the whole text, a dot being any character.

    The audit's engine has nothing better. Its time is bounded by the product of both lengths: what `%` has
    found once is an atomic group, so nothing is searched twice.
    """
    first, *others = map(_expression, parts(pattern))
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>.*?{part})" for part in middle) + f".*{last}"
