"""Whole names in a text, in every form that is searched, and what replaces them. Plain Python.

A name is found in any case, behind escapes (of JSON and URIs, NUL characters of UTF-16), and within base64,
hex, gzip and deflate, nested up to `MAX_DEPTH`. What cannot be searched is reported: it may hold a name.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from eventplane.names import ERASED

MAX_DEPTH: Final = 4
"""How many encodings within each other are decoded. Ours."""

MAX_ESCAPES: Final = 8
"""How many levels of escapes are undone. Ours: a line of the archive has an event with JSON in a text, 3."""

MAX_DECODED_BYTES: Final = 2 * 2**20
"""Most bytes that are decoded of the words of one text. Ours: 20 times the largest event."""

COMPRESSED: Final = "compressed in a form that is not searched, or damaged"
NESTED: Final = f"encoded more than {MAX_DEPTH} times, or escaped more than {MAX_ESCAPES} times"
TOO_LARGE: Final = f"more than {MAX_DECODED_BYTES} bytes decoded"
NOT_TEXT: Final = "not text, nor a form that is searched"

_PASSES: Final = 4
_MOST_KNOWN: Final = 100_000

_OPAQUE_BYTES: Final = 96
"""Bytes from which on what is not text is reported. Ours: digests and keys have fewer, and hold no name."""

# What can be part of a name does not end one: letters, digits, "_", "-", and ":" next to one of these. A dot
# in front of a letter is that of a longer host name; ids have numbers behind it, and sentences a space.
_BEFORE: Final = r"(?<![\w-])(?<![\w:-]:)"
_BEHIND: Final = r"(?![\w-]|:+[\w-]|\.(?!{names})[A-Za-z])"

_JSON_ESCAPE: Final = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|(["\\/bfnrt]))')
_ESCAPE: Final = re.compile(rf"{_JSON_ESCAPE.pattern}|(?:%|\\x)([0-9A-Fa-f]{{2}})")
_WHITESPACE: Final = dict.fromkeys("bfnrt", "\n")

_LINES: Final = r"(?:\r?\n[A-Za-z0-9+/_-]+)*"
_URL_SAFE: Final = str.maketrans("-_", "+/", "\r\n")

_PRINTABLE: Final = bytes([*b"\t\r\n", *range(32, 127)])

_UNSEARCHED: Final = (
    b"\x28\xb5\x2f\xfd",
    b"BZh",
    b"\xfd7zXZ",
    b"PK\x03\x04",
    b"\x04\x22\x4d\x18",
    b"7z\xbc\xaf",
)
"""What zstd, bzip2, xz, zip, lz4 and 7z begin with."""


class Redacted(NamedTuple):
    """A text without names, and why it may hold one all the same."""

    text: str
    may_remain: frozenset[str]


def mark(replaced: str) -> str:
    """Return what stands for a text: different for different texts, so that what was unequal stays unequal.

    It needs no escape in JSON and URIs. Of digits it is digits: a number stays one.
    """
    digest = hashlib.sha256(replaced.encode("utf-8", "surrogatepass")).hexdigest()
    return f"9{int(digest[:14], 16):017d}" if replaced.isdecimal() else f"{ERASED}{digest[:16]}"


def encoded_mark(replaced: str) -> str:
    """Return `mark` in base64, which has neither padding nor characters that URLs know otherwise."""
    return base64.b64encode(f"{mark(replaced):+>24}".encode()).decode()


@dataclass(frozen=True)
class Names:
    """The names to look for, and `others`: identifiers that are replaced by the given ones."""

    names: Sequence[str]
    others: Mapping[str, str] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type[Names], tuple[Sequence[str], Mapping[str, str]]]:
        return Names, (self.names, self.others)  # not with all words that are known

    def redact(self, text: str) -> Redacted:
        """Return `text` with a mark in place of each name, and of each encoded word that holds one.

        All forms of a name that JSON reads as one text have one mark.
        """
        for _ in range(_PASSES):
            found = self._redacted(text)
            if found.text == text:
                return found
            # Next to what was replaced another one may have become whole.
            text = found.text
        return Redacted(text, found.may_remain | {NESTED})

    def _redacted(self, text: str) -> Redacted:
        view, may_remain = _unescaped(text)
        found = [(each.start(), -each.end(), "") for each in self.pattern.finditer(view)]
        search = _Search(self)
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        for word in self.words.finditer(view):
            form, unread = self._found_in(word[0], search)
            may_remain |= unread
            if form:
                found.append((word.start(), -word.end(), form))
        if not found:
            return Redacted(text, may_remain)
        places, parts, at = _places(text), list[str](), 0
        for start, end, form in sorted(found):
            if places[start] >= at:
                replaced = text[places[start] : places[-end]]
                parts += text[at : places[start]], self._in_place_of(replaced, form)
                at = places[-end]
        return Redacted("".join([*parts, text[at:]]), may_remain)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The names as whole identifiers, in a text without escapes."""
        # Bytes that are not read as UTF-8 are read as Latin-1.
        spelled = {spelling for name in (*self.names, *self.others) for spelling in (name, _as_latin(name))}
        in_order = sorted(spelled, key=len, reverse=True)
        behind = _BEHIND.format(names="|".join(map(re.escape, in_order)))
        # A colon at the end is a separator, as in urn:home-17:
        whole = "|".join(re.escape(each) + ("" if each.endswith(":") else behind) for each in in_order)
        return re.compile(f"{_BEFORE}(?:{whole})", re.IGNORECASE | re.ASCII)

    @cached_property
    def _least(self) -> int:
        """Bytes of the shortest name."""
        return min(len(name.encode()) for name in (*self.names, *self.others))

    @cached_property
    def words(self) -> re.Pattern[str]:
        """Words that are long enough to hold a name in base64 or hex."""
        return re.compile(rf"[A-Za-z0-9+/_-]{{{-(-4 * self._least // 3)},}}{_LINES}={{0,2}}")

    @cached_property
    def hex(self) -> re.Pattern[str]:
        """Runs of hexadecimal digits that can."""
        return re.compile(rf"[0-9A-Fa-f]{{{2 * self._least},}}")

    @cached_property
    def _known(self) -> dict[str, tuple[str, frozenset[str]]]:
        """How words have a name encoded ('' for not at all), and why they may have one.

        Members, sources and devices come again in each row.
        """
        return {}

    def _found_in(self, word: str, search: _Search) -> tuple[str, frozenset[str]]:
        if (known := self._known.get(word)) is None:
            search.may_remain = set()
            known = search.word(word, MAX_DEPTH), frozenset(search.may_remain)
            if TOO_LARGE not in search.may_remain:  # of another text there may be less
                self._known[word] = known
        return known

    def _in_place_of(self, replaced: str, form: str) -> str:
        if replaced in self.others:
            return self.others[replaced]
        for _ in range(MAX_ESCAPES):
            replaced = _JSON_ESCAPE.sub(_character, replaced)
        # Whoever reads the word decodes it.
        if form == _BASE64:
            return encoded_mark(replaced)
        return mark(replaced).encode().hex() if form == _HEX else mark(replaced)


_BASE64, _HEX = "base64", "hex"


class _Search:
    """A search in the words of one text, which decodes `MAX_DECODED_BYTES` at most."""

    def __init__(self, names: Names) -> None:
        self.may_remain: set[str] = set()
        self._names = names
        self._left = MAX_DECODED_BYTES

    def word(self, word: str, depth: int) -> str:
        """Return as what `word` has a name: `_BASE64`, `_HEX`, '' for not at all."""
        for run in self._names.hex.finditer(word):
            for shift in (0, 1):
                digits, is_whole = run[0][shift:], not shift and run[0] == word
                if self._has(bytes.fromhex(digits[: len(digits) // 2 * 2]), depth, is_whole=is_whole):
                    return _HEX
        plain = word.rstrip("=").translate(_URL_SAFE)
        is_hex = self._names.hex.fullmatch(plain) is not None
        for shift in range(4):
            piece = plain[shift:]
            piece = piece[: len(piece) - (len(piece) % 4 == 1)]
            decoded = binascii.a2b_base64(piece + "=" * (-len(piece) % 4))
            if self._has(decoded, depth, is_whole=not shift and not is_hex):
                return _BASE64
        return ""

    def _has(self, content: bytes, depth: int, *, is_whole: bool) -> bool:
        self._left -= len(content)
        if self._left < 0:
            self.may_remain.add(TOO_LARGE)
            return False
        if not depth:
            if _is_plain(content) or _inflated(content, 1)[0]:
                self.may_remain.add(NESTED)
            return False
        if any(self._named(text, depth) for text in _texts(content)):
            return True
        if not is_whole or _is_plain(content):
            return False
        inflated, is_complete = _inflated(content, self._left)
        if inflated and self._has(inflated, depth - 1, is_whole=True):
            return True
        if content.startswith(_UNSEARCHED) or not is_complete:
            self.may_remain.add(COMPRESSED)
        elif not inflated and len(content) >= _OPAQUE_BYTES and len({*content}) >= _OPAQUE_BYTES // 4:
            self.may_remain.add(NOT_TEXT)
        return False

    def _named(self, text: str, depth: int) -> bool:
        view, unread = _unescaped(text)
        self.may_remain |= unread
        if self._names.pattern.search(view):
            return True
        return any(self.word(each[0], depth - 1) for each in self._names.words.finditer(view))


def _as_latin(name: str) -> str:
    return name.encode().decode("latin-1")


def _texts(content: bytes) -> Iterator[str]:
    """Yield the texts that bytes may be; of UTF-16 the one without NUL characters is among them."""
    try:
        yield content.decode()
    except UnicodeDecodeError:
        yield content.decode("latin-1")
    if b"\0" in content:
        yield content.decode("utf-16-le", "replace")
        yield content.decode("utf-16-be", "replace")


def _is_plain(content: bytes) -> bool:
    """Return whether bytes are mostly printable, NUL left out."""
    letters = content.replace(b"\0", b"")
    return len(letters.translate(None, _PRINTABLE)) <= 0.15 * len(letters)


def _inflated(content: bytes, most: int) -> tuple[bytes, bool]:
    """Return gzip, zlib or bare deflate decompressed, and whether that is all; nothing of anything else."""
    is_gzip = content.startswith(b"\x1f\x8b\x08")
    is_zlib = content[:1] == b"\x78" and int.from_bytes(content[:2]) % 31 == 0
    reader = zlib.decompressobj(zlib.MAX_WBITS | 32 if is_gzip or is_zlib else -zlib.MAX_WBITS)
    try:
        found = reader.decompress(content, max(most, 1))
    except zlib.error:
        # Of 8,000 words one begins like zlib.
        return b"", not is_gzip
    if reader.eof:
        return found, True
    return (found, not (is_gzip or found)) if is_gzip or is_zlib else (b"", True)


def _character(escape: re.Match[str]) -> str:
    unit, own, *byte = escape.groups()
    return _WHITESPACE.get(own, own) if own else chr(int(unit or byte[0], 16))


def _unescaped(text: str) -> tuple[str, frozenset[str]]:
    """Return `text` without escapes and NUL characters, and why some may be left."""
    for _ in range(MAX_ESCAPES):
        before, text = text, _ESCAPE.sub(_character, text.replace("\0", ""))
        if text == before:
            return text, frozenset()
    return text, frozenset({NESTED} if _ESCAPE.search(text) else ())


def _places(text: str) -> Sequence[int]:
    """Return where in `text` each character begins of what `_unescaped` returns, and where the last ends."""
    places: Sequence[int] = range(len(text) + 1)
    for _ in range(MAX_ESCAPES):
        before = text
        places = [place for place, each in zip(places, f"{text}.", strict=True) if each != "\0"]
        text, kept, at = text.replace("\0", ""), list[int](), 0
        for escape in _ESCAPE.finditer(text):
            kept += places[at : escape.start() + 1]
            at = escape.end()
        text, places = _ESCAPE.sub(_character, text), [*kept, *places[at:]]
        if text == before:
            break
    return places
