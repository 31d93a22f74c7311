"""Recorded events with the digests of their texts by `sha256sum`, which all our programs compute."""

import json
from pathlib import Path
from typing import Final

DIGESTS: Final = {
    row["text"]: str(row["digest"])
    for row in json.loads((Path(__file__).parent / "golden" / "event-digests.json").read_text("utf-8"))
}
"""The first 32 hexadecimal digits of the SHA-256 of each text without the whitespace around it, by the text.

The second is the first with whitespace around it; all others differ in one attribute or in their form.
"""

SHORT: Final = {text.strip(): digest[16:] for text, digest in DIGESTS.items()}
"""The digests as the archive has them."""
