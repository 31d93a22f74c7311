"""Why an erasure is not done."""

from __future__ import annotations

from eventplane.errors import EventPlaneError


class TooWideError(EventPlaneError):
    """The `source` would take in more than one person's events."""

    def __init__(self, source: str) -> None:
        super().__init__(
            f"--SOURCE {source!r} is too short to be one person's; give the whole beginning of the sources, "
            "such as //home-17/"
        )
        self.source = source


class LeftOverError(EventPlaneError):
    """After the erasure there are still `rows` of the person."""

    def __init__(self, rows: int) -> None:
        super().__init__(
            f"{rows} rows are there again after they were removed: something writes them; end it (a restore, "
            "a copy), and run the erasure again"
        )
        self.rows = rows
