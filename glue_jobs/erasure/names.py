"""Whole names in a text, in every form that is searched, and what replaces them. Plain Python.

A name is found in any case, behind escapes (of JSON and URIs, NUL characters of UTF-16), and within base64,
hex, gzip and deflate, nested up to `MAX_DEPTH`. What cannot be searched is reported: it may hold a name.
In JSON, texts and member names can hold a name. Numbers are kept, also those that a member has as text.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple
from unicodedata import normalize

from eventplane.archive_layout import ERASED, FOLDERS, TAP_ATTRIBUTES, ColumnType
from eventplane.attributes import RULES, STRINGS
from eventplane.device_reports import REPORT_PREFIX
from eventplane.names import ORDER
from eventplane.values import is_timestamp

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
NUMBER: Final = "a JSON number that equals the name; numbers are kept"

_PASSES: Final = 4
_MOST_KNOWN: Final = 100_000

_OPAQUE_BYTES: Final = 96
"""Bytes from which on what is not text is reported. Ours: digests and keys have fewer, and hold no name."""

_TELLING_DIGITS: Final = 7
"""Digits from which on a number that equals a name is reported. Ours: shorter counters, readings and settings
are often equal by chance."""

# What can be part of a name does not end one: letters, digits, "_", "-", and ":" next to one of these. A dot
# in front of a letter is that of a longer host name; ids have numbers behind it, and sentences a space. An
# accent belongs to the letter in front.
_BEFORE: Final = r"(?<![\w-])(?<![\w:-]:)"
_BEHIND: Final = r"(?![\w\u0300-\u036f-]|:+[\w-]|\.(?!{names})[A-Za-z])"

_JSON_ESCAPE: Final = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|(["\\/bfnrt]))')
_ESCAPE: Final = re.compile(rf"{_JSON_ESCAPE.pattern}|(?:%|\\x)([0-9A-Fa-f]{{2}})")
_WHITESPACE: Final = dict.fromkeys("bfnrt", "\n")

_LINES: Final = r"(?:\r?\n[A-Za-z0-9+/_-]+)*"
_URL_SAFE: Final = str.maketrans("-_", "+/", "\r\n")

_OBJECT: Final = re.compile(r'[\s\ufeff\[]*\{\s*(?:["}]|\Z)')
"""What begins like this is JSON, even if it is cut."""

_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*+)(\\?\Z|"(?:\s*(:))?)', re.DOTALL)
"""A string of JSON, which may be cut, and the colon behind a member's name."""

_BETWEEN: Final = re.compile(
    r'(?:[\s,:\[\]{}"\ufeff]|(?:-?[0-9][0-9.eE+-]*|true|false|null)(?=[\s,:\[\]{}]|\Z))*+\\?'
)
"""What JSON has between the contents of its strings; a backslash is where one was cut."""

_WHOLE_NUMBER: Final = re.compile(r"(?<=[\s,:\[])[0-9]+(?=[\s,\]}])")

_NUMBERS: Final = frozenset(
    {
        *(each.name for folder in FOLDERS for each in folder.columns if each.type is ColumnType.WHOLE_NUMBER),
        # Those that may be Integers are texts in the compacted tap.
        *({*TAP_ATTRIBUTES} - STRINGS),
        *(name for name, (_, holds, _) in RULES.items() if holds is is_timestamp),
        *("sequence", ORDER, "stateversion", "downreset", "downversion", "downorder", "downfence"),
        *("digest", "event_digest"),
    }
)
"""Columns and attributes that have numbers, times or digests, maybe as text. Data has members of any kind."""

_REPORTED: Final = frozenset({"version", "order", "fence", "digest"})
"""The same of the data of devices' reports, which has a schema of the plane."""

_IS_REPORT: Final = re.compile(rf'"type"\s*:\s*"{re.escape(REPORT_PREFIX)}')

_AS_TEXT: Final = re.compile(
    r"(\A(?:[0-9]+|[0-9a-f]{16,64}|[0-9-]{10}[Tt][0-9:.]+(?:[Zz]|[+-][0-9:]+))\Z"
    r"|(?<=/)[0-9a-f]{8}/[0-9]+(?=\s|\Z))"
)
"""A number, a digest or a time as text; or the end of a position in an inbox (`eventplane.ordering`)."""

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

    It needs no escape in JSON and URIs.
    """
    return f"{ERASED}{hashlib.sha256(replaced.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


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

    def redact(self, text: str, member: str = "") -> Redacted:
        """Return `text` with a mark in place of each name, and of each encoded word that holds one.

        All forms of a name that JSON reads as one text have one mark. `member` is whose value the text is.
        """
        for _ in range(_PASSES):
            found = self._redacted(text, member)
            if found.text == text:
                return found
            # Next to what was replaced another one may have become whole.
            text = found.text
        return Redacted(text, found.may_remain | {NESTED})

    def _redacted(self, text: str, member: str) -> Redacted:
        found = self._replaced(text)
        if found.text == text:
            return found
        may_remain = set[str]()

        def change(part: str) -> str:
            redacted = self._replaced(part)
            may_remain.update(redacted.may_remain)
            return redacted.text

        def keep(part: str) -> None:
            may_remain.update(self.equal_numbers(part))

        is_number = member in _NUMBERS
        return Redacted(_mapped(text, change, keep, is_number=is_number), frozenset(may_remain))

    def _replaced(self, text: str) -> Redacted:
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
        in_order = sorted(map(_composed, (*self.names, *self.others)), key=len, reverse=True)
        behind = _BEHIND.format(names="|".join(map(_spellings, in_order)))
        # A colon at the end is a separator, as in urn:home-17:
        whole = "|".join(_spellings(each) + ("" if each.endswith(":") else behind) for each in in_order)
        return re.compile(f"{_BEFORE}(?:{whole})", re.IGNORECASE | re.ASCII)

    def equal_numbers(self, part: str) -> frozenset[str]:
        """Return `NUMBER` as a reason if a number in this part of a JSON text may stand for a name."""
        telling = {name for name in self.names if name.isdecimal() and len(name) >= _TELLING_DIGITS}
        return frozenset() if telling.isdisjoint(_WHOLE_NUMBER.findall(part)) else frozenset({NUMBER})

    @cached_property
    def _least(self) -> int:
        """Bytes of the shortest name."""
        return min(len(_composed(name)) for name in (*self.names, *self.others))

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
        if not self._names_in(text, depth):
            return False
        is_named = False

        def change(part: str) -> str:
            nonlocal is_named
            is_named = is_named or self._names_in(part, depth)
            return part

        def keep(part: str) -> None:
            self.may_remain |= self._names.equal_numbers(part)

        _mapped(text, change, keep)
        return is_named

    def _names_in(self, text: str, depth: int) -> bool:
        view, unread = _unescaped(text)
        self.may_remain |= unread
        if self._names.pattern.search(view):
            return True
        return any(self.word(each[0], depth - 1) for each in self._names.words.finditer(view))


def _mapped(
    text: str,
    change: Callable[[str], str],
    keep: Callable[[str], object],
    *,
    is_number: bool = False,
) -> str:
    """Return `text` with `change` applied to each part that can hold a name.

    `keep` is called with parts of JSON between its strings whose numbers may be anything. `is_number` is
    whether the text is the value of a member that has a number.
    """
    if is_number:
        pieces = _AS_TEXT.split(text)
        return "".join(each if at % 2 else change(each) for at, each in enumerate(pieces))
    strings = _strings(text)
    if strings is None:
        return change(text)
    is_report = _IS_REPORT.search(text) is not None
    made, at, depth, is_number = list[str](), 0, 0, False
    for string in strings:
        between, content, is_name = text[at : string.start(1)], string[1], string[3] is not None
        if not (is_report or is_number):
            keep(between)
        depth += between.count("{") - between.count("}")
        decoded = _decoded(content)
        if decoded is None or _strings(decoded) is None:
            inside = _mapped(content, change, keep, is_number=is_number and not is_name)
        else:
            inside = _mapped(decoded, change, keep)
            inside = content if inside == decoded else json.dumps(inside, ensure_ascii=False)[1:-1]
        made += between, inside
        at = string.end(1)
        if is_name:
            is_number = (depth == 1 and content in _NUMBERS) or (is_report and content in _REPORTED)
    if not (is_report or is_number):
        keep(text[at:])
    return "".join([*made, text[at:]])


def _strings(text: str) -> list[re.Match[str]] | None:
    """Return the strings of a JSON object or list; None where `text` is none. An object may be cut."""
    if not _OBJECT.match(text):
        try:
            if not isinstance(json.loads(text) if text.lstrip().startswith("[") else None, list):
                return None
        except (ValueError, RecursionError):
            return None
    strings, at = list(_STRING.finditer(text)), 0
    for end, behind in [*((each.start(1), each.end(1)) for each in strings), (len(text), 0)]:
        if not _BETWEEN.fullmatch(text, at, end):
            return None
        at = behind
    return strings


def _decoded(content: str) -> str | None:
    """Return the text of a JSON string; None where it cannot be written again."""
    try:
        text: str = json.loads(f'"{content}"', strict=False)
        text.encode()
    except ValueError:
        return None
    return text


def _composed(name: str) -> str:
    """Return `name` as texts have it in which all escapes are undone and accents are composed."""
    name = _unescaped(name)[0]
    with suppress(UnicodeError):
        name = name.encode("latin-1").decode()  # escapes of URIs are bytes of UTF-8
    return normalize("NFC", name)


def _spellings(name: str) -> str:
    """Return a pattern of a `_composed` name, with letters beyond ASCII in both cases, composed or not.

    Bytes that are not read as UTF-8 are read as Latin-1.
    """
    return "".join(re.escape(each) if each.isascii() else _letter(each) for each in name)


def _letter(letter: str) -> str:
    cased = (letter, letter.lower(), letter.upper())
    forms = {normalize(form, each) for each in cased for form in ("NFC", "NFD")}
    forms |= {each.encode("utf-8", "surrogatepass").decode("latin-1") for each in forms}
    return f"(?:{'|'.join(map(re.escape, sorted(forms, key=len, reverse=True)))})"


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
