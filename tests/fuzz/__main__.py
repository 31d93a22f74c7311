"""`python -m tests.fuzz`: every reader under a coverage-guided fuzzer; writes build/bench/fuzz.json.

Exit status 1 when one of them met what nobody foresaw; the input is named.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from lab.benchmarks.results import Figure, write
from tests.fuzz import SLOW_S
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import ACCEPTED, TARGETS

FOLDER = Path(__file__).parents[2] / "build" / "fuzz"
_COVERAGE = re.compile(r"cov: (\d+) ")


def main() -> int:
    """Fuzz each reader for a while, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", default=list(TARGETS), help="readers; all without")
    parser.add_argument("--seconds", type=float, default=60, help="for each")
    arguments = parser.parse_args()
    found = [figures(name, arguments.seconds) for name in arguments.targets]
    command = f"python -m tests.fuzz {' '.join(sys.argv[1:])}".strip()
    write("fuzz", [each for some in found for each in some], command, f"{arguments.seconds:g} s a reader")
    return int(any(figure.met is False for some in found for figure in some))


def figures(name: str, seconds: float) -> list[Figure]:
    """What became of a reader's inputs."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    for number, seed in enumerate(seeds(name)):
        (corpus / f"seed-{number}").write_bytes(seed)
    log = folder / "log.txt"
    with log.open("wb") as file:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.one", name, str(seconds), str(folder)],
            stderr=file,
            stdout=file,
            check=False,
        )
    counts = Counter(
        json.loads((folder / "counts.json").read_text()) if (folder / "counts.json").exists() else {}
    )
    crashes = [each for kind in ("crash", "timeout", "oom") for each in folder.glob(f"{kind}-*")]
    for each in crashes:
        print(f"{name}: {each}; see {log}", file=sys.stderr)
    never_ran = not crashes and (ended.returncode != 0 or not counts)
    if never_ran:
        print(f"{name}: ended with {ended.returncode}, {counts.total()} inputs; see {log}", file=sys.stderr)
    edges = _COVERAGE.findall(log.read_text(errors="replace"))
    names = sorted(set(counts) - {ACCEPTED})
    return [
        Figure(f"{name}_inputs", counts.total(), "inputs", note=f"{counts[ACCEPTED]} of them read"),
        Figure(f"{name}_refusals", len(names), "names", note=", ".join(names)[:200]),
        Figure(f"{name}_edges", int(edges[-1]) if edges else 0, "edges", note="of the code, reached"),
        Figure(
            f"{name}_unforeseen", len(crashes) + never_ran, "inputs", 0,
            note=f"an exception without a name, more than {SLOW_S} s, or more than 1 GiB"
            + "; the fuzzer itself ended before its time" * never_ran,
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
