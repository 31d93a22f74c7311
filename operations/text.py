"""Text for terminals: escaped, so that no event moves the cursor or changes the reading direction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

_HEX_WIDTH: Final = 16
_SHOWN_BYTES: Final = 4_096
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


def safe(text: str) -> str:
    """`text` with everything that does not print as an escape; line ends stay."""
    return "".join(each if each.isprintable() or each == "\n" else _escape(each) for each in text)


def word(text: str) -> str:
    """Do as `safe`, for a value within a line: line ends are escaped as well."""
    return safe(text).replace("\n", "\\n")


def shown(original: bytes) -> str:
    """Bytes as text if they are text, otherwise in hexadecimal; beyond 4 KiB they are cut."""
    head = original[:_SHOWN_BYTES]
    cut = f"\n... {len(original) - len(head)} more bytes; --json has all" if len(head) < len(original) else ""
    try:
        return safe(original.decode("utf-8")[:_SHOWN_BYTES]) + cut
    except UnicodeDecodeError:
        return _dump(head) + cut


def moment(unix_ms: int) -> str:
    """A time in UTC; `unix_ms` in Unix milliseconds. One that no clock can show is given as it is."""
    try:
        at = datetime.fromtimestamp(unix_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{unix_ms} ms"
    return at.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def age(seconds: float) -> str:
    """Return an age in the largest unit that fits."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as they need; every value is made a `word`, None a dash."""
    lines = [list(head), *([word("-" if each is None else str(each)) for each in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "\n".join(
        "  ".join(each.ljust(width) for each, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def pairs(values: Sequence[tuple[str, str]]) -> str:
    """One line a value, its name in front."""
    width = max(len(name) for name, _ in values)
    return "\n".join(f"{name.ljust(width)}  {word(value)}" for name, value in values)


def _escape(character: str) -> str:
    number = ord(character)
    return (
        f"\\x{number:02x}"
        if number < 0x100
        else f"\\u{number:04x}"
        if number < 0x10000
        else f"\\U{number:08x}"
    )


def _dump(raw: bytes) -> str:
    lines = []
    for start in range(0, len(raw), _HEX_WIDTH):
        row = raw[start : start + _HEX_WIDTH]
        readable = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in row)
        lines.append(f"{start:06x}  {row.hex(' ').ljust(3 * _HEX_WIDTH - 1)}  {readable}")
    return "\n".join(lines)
