"""`python -m tests.fuzz.one TARGET SECONDS FOLDER`: one reader under Atheris, guided by coverage.

Writes what became of all inputs to FOLDER/counts.json. The first input that brings out what nobody foresaw,
takes longer than `SLOW_S` or too much memory ends it, and lies in FOLDER then.
"""

import json
import logging
import os
import sys
import time
from collections import Counter
from pathlib import Path

import atheris

from tests.fuzz import SLOW_S

PACKAGES = ["eventplane", "eventplane_mqtt", "edge", "contract", "operations", "parts", "glue_jobs", "yaml"]

with atheris.instrument_imports(include=PACKAGES):
    from tests.fuzz.targets import TARGETS

_MIB = 1_024
_OFTEN = 200


def main() -> None:
    """Until the time is over; the fuzzer never returns."""
    name, seconds, folder = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
    logging.disable()
    target, counts = TARGETS[name], Counter[str]()
    over = time.monotonic() + seconds

    def one(raw: bytes) -> None:
        counts[target(raw)] += 1
        if counts.total() % _OFTEN == 0 or time.monotonic() >= over:
            (folder / "counts.json").write_text(json.dumps(counts))
            if time.monotonic() >= over:
                os._exit(0)

    limits = [f"-timeout={SLOW_S}", f"-rss_limit_mb={_MIB}", "-max_len=100000"]
    options = [*limits, f"-artifact_prefix={folder}/"]
    atheris.Setup([sys.argv[0], *options, str(folder / "corpus")], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
