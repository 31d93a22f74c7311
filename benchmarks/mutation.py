"""Mutation tests: change the code in small ways, and count how many of the changes the unit tests notice.

A sample of each module's mutants is tested with mutmut, in `build/mutation/MODULE`. Results stay there, so
that a run that was ended goes on where it was. `survivors.diff` beside them shows what no test noticed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Final

from benchmarks import results

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "mutation"
PYTHON = ROOT / ".venv-mutation" / "bin" / "python"
MUTANTS = 300
"""How many mutants of a module are tested; of 300 a score is within 6 points, in 19 of 20 samples."""
SECONDS = 900.0
END_S = 10.0
"""How long mutmut may take to end when the time is over."""

# Each call passes through two more frames, and some tests nest as deep as they may. A shell's background job
# ignores SIGINT, by which mutmut is ended.
_MUTMUT = """
import signal, sys
sys.setrecursionlimit(20_000)
signal.signal(signal.SIGINT, signal.default_int_handler)
from mutmut.__main__ import cli
cli()
"""
_SHOW = """
import sys
from mutmut.mutation.diff_apply import find_mutant, get_diff_for_mutant
for name in sys.stdin.read().split():
    print(f"# {name}", get_diff_for_mutant(name, path=find_mutant(name).path), sep="\\n", flush=True)
"""
_NO_MUTANT = "no.such.mutant"
_KILLED, _SURVIVED, _NO_TEST, _TIMEOUT = "killed", "survived", "no test", "timeout"
_OUTCOMES: Final[Mapping[int, str]] = {
    0: _SURVIVED,
    1: _KILLED,
    3: _KILLED,
    5: _NO_TEST,
    24: _TIMEOUT,
    33: _NO_TEST,
    36: _TIMEOUT,
    152: _TIMEOUT,
    -9: _TIMEOUT,
    -24: _TIMEOUT,
}
"""By the exit codes of mutmut 3. A mutant that ends in another way, as by a crash, is killed as well."""

# What an error message or a line of the log says is not tested word by word.
_TEXT_ONLY = (r"^\s*raise\b", r"\b_?(log|LOG|logger)\.(debug|info|warning|error|exception|critical)\(")


@dataclass(frozen=True)
class Module:
    """Source files, by patterns, and the tests that ought to notice a change of them."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()
    without_tests: tuple[str, ...] = ()
    """Tests that read the text of the sources, or what they import: with mutants that is another."""


MODULES: Final[Mapping[str, Module]] = {
    "cesql": Module(
        ("eventplane/cesql/*",),
        (
            "tests/unit/eventplane/cesql",
            "tests/unit/eventplane/test_filter*.py",
            "tests/property/test_cesql.py",
        ),
    ),
    "core": Module(
        ("eventplane/*", "eventplane/downlink/*", "eventplane/interest/*", "eventplane/conversation/*"),
        (
            "tests/unit/eventplane",
            "tests/property/test_conversation.py",
            "tests/property/test_deliveries.py",
            "tests/property/test_downlink.py",
            "tests/property/test_envelope.py",
            "tests/property/test_fast_reader.py",
            "tests/property/test_fleet.py",
            "tests/property/test_route_index.py",
            "tests/property/test_tracing.py",
        ),
        (
            "eventplane/__main__.py",
            "eventplane/alarm_floor.py",
            "eventplane/cesql/*",
            "eventplane/contract/*",
            "eventplane/reach.py",
            "eventplane/registry/*",
        ),
        ("tests/unit/eventplane/test_reasons.py",),
    ),
    "rights": Module(
        (
            "eventplane/sender.py",
            "eventplane/sending.py",
            "eventplane/downlink/rights.py",
            "eventplane/dead_letter.py",
        ),
        (
            "tests/unit/eventplane/downlink",
            "tests/unit/eventplane/test_sending.py",
            "tests/unit/eventplane/test_dead_letter.py",
            "tests/unit/contract/test_subscription.py",
            "tests/unit/contract/test_checks.py",
            "tests/unit/lambdas/test_senders.py",
            "tests/unit/lambdas/downlink",
            "tests/unit/edge/test_downlink.py",
            "tests/unit/edge/test_decision.py",
            "tests/property/test_letters.py",
        ),
    ),
    "spool": Module(
        ("edge/spool/*",),
        (
            "tests/unit/edge/test_spool*.py",
            "tests/unit/edge/test_numbering.py",
            "tests/unit/edge/test_expiry.py",
            "tests/property/test_spool.py",
            "tests/property/test_spool_count.py",
        ),
    ),
    "forwarder": Module(
        ("edge/*",),
        (
            "tests/unit/edge",
            "tests/property/test_downlink_device.py",
        ),
        (
            "edge/spool/*",
            "edge/provisioning/*",
            "edge/packaging/*",
            "edge/__main__.py",
            "edge/command_line.py",
        ),
        (
            "tests/unit/edge/test_device_is_small.py",
            "tests/unit/edge/test_health_status.py::test_every_problem_is_in_the_reference",
        ),
    ),
    "router": Module(
        ("lambdas/router/*",),
        ("tests/unit/lambdas/test_*.py",),
    ),
    "audit": Module(
        ("glue_jobs/delivery_audit/*",),
        ("tests/unit/glue_jobs", "tests/property/test_audit.py"),
        # These are column expressions of Spark, which tests/spark tests.
        (
            "glue_jobs/delivery_audit/cesql*.py",
            "glue_jobs/delivery_audit/audit.py",
            "glue_jobs/delivery_audit/screen.py",
        ),
    ),
    "client": Module(
        ("eventplane_client/*",),
        ("tests/unit/client", "tests/property/test_client_power_cuts.py"),
        without_tests=("tests/unit/client/test_package.py::TestImports",),
    ),
}  # fmt: skip


class Workspace:
    """The folder in which one module's mutants are made and tested."""

    def __init__(self, name: str, module: Module) -> None:
        self.name = name
        self.folder = WORK / name
        self._module = module
        self._package = module.sources[0].split("/")[0]

    def prepare(self, until: float) -> None:
        """Make the mutants and learn which test runs which function, unless both are known."""
        digest = self._digest_of_tests()
        stamp = self.folder / "tests.sha256"
        if stamp.exists() and stamp.read_text() != digest:
            shutil.rmtree(self.folder)  # other tests: each result may be another
        self.folder.mkdir(parents=True, exist_ok=True)
        stamp.write_text(digest)
        entries = _entries()
        for entry in entries:
            link = self.folder / entry
            link.unlink(missing_ok=True)
            link.symlink_to(ROOT / entry)
        self._configure([entry for entry in entries if entry != self._package])
        if not self._stats.exists() or not self.outcomes():
            # The name matches none: mutmut ends after it has made the mutants and run each test once.
            self._mutmut(until, "run", "--max-children", "2", _NO_MUTANT)
        if not self._stats.exists():
            raise SystemExit(
                f"{self.name}: the tests did not pass, or the time was over: {self.folder / 'log'}"
            )

    def test(self, wanted: Iterable[str], until: float) -> None:
        """Test the mutants that have no result yet, the quick ones first, until the time is over."""
        known = self.outcomes()
        if open_ones := [name for name in wanted if known[name] is None]:
            self._mutmut(until, "run", "--max-children", "2", *open_ones)

    def outcomes(self) -> dict[str, str | None]:
        """What became of each mutant; None if it is not tested."""
        found: dict[str, str | None] = {}
        for path in sorted((self.folder / "mutants").rglob("*.py.meta")):
            for name, code in json.loads(path.read_text())["exit_code_by_key"].items():
                found[name] = None if code in (None, 2) else _OUTCOMES.get(code, _KILLED)
        return found

    def show(self, survivors: Iterable[str]) -> None:
        """Write what the surviving mutants change."""
        with (self.folder / "survivors.diff").open("w") as file:
            subprocess.run(
                [PYTHON, "-c", _SHOW],
                cwd=self.folder,
                input=" ".join(survivors),
                stdout=file,
                text=True,
                check=True,
            )

    @property
    def _stats(self) -> Path:
        return self.folder / "mutants" / "mutmut-stats.json"

    def _configure(self, others: Sequence[str]) -> None:
        tests = [
            str(path.relative_to(ROOT))
            for pattern in self._module.tests
            for path in sorted(ROOT.glob(pattern))
        ]
        lists: dict[str, Sequence[str]] = {
            "source_paths": [self._package],
            "only_mutate": self._module.sources,
            "do_not_mutate": self._module.without,
            "do_not_mutate_patterns": _TEXT_ONLY,
            "also_copy": others,
            "pytest_add_cli_args_test_selection": tests,
            # The same examples in each run: only a change of code or tests changes a score.
            "pytest_add_cli_args": [
                "--hypothesis-profile=fast",
                "--hypothesis-seed=0",
                "-pno:cacheprovider",
                "-pbenchmarks.fresh_caches",
                *(f"--deselect={test}" for test in self._module.without_tests),
            ],
        }
        lines = ["[mutmut]", "use_git_change_detection = false"]
        for key, values in lists.items():
            if values:  # an empty list would be read as a list of the empty pattern
                lines += [f"{key} =", *(f"  {value}" for value in values)]
        (self.folder / "setup.cfg").write_text("\n".join(lines) + "\n")

    def _digest_of_tests(self) -> str:
        digest = hashlib.sha256()
        for pattern in self._module.tests:
            for path in sorted(ROOT.glob(pattern)):
                for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
                    digest.update(str(file).encode() + file.read_bytes())
        return digest.hexdigest()

    def _mutmut(self, until: float, *arguments: str) -> None:
        environment = dict(os.environ)
        environment["EVENTPLANE_SHARED"] = str(
            Path(os.environ.get("EVENTPLANE_SHARED", ROOT / "../shared")).resolve()
        )
        with (self.folder / "log").open("w") as log:
            process = subprocess.Popen(
                [PYTHON, "-c", _MUTMUT, *arguments],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(max(1.0, until - monotonic()))
            except (subprocess.TimeoutExpired, KeyboardInterrupt) as reason:
                _end(process)
                if isinstance(reason, KeyboardInterrupt):
                    raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """End mutmut and its workers; it has saved each result."""
    for way in (signal.SIGINT, signal.SIGKILL):
        os.killpg(process.pid, way)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            continue
        return


def main() -> int:
    """Test a sample of the modules' mutants and write the scores of all modules that have results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(MODULES)}; default: all")
    parser.add_argument("--mutants", type=int, default=MUTANTS, help="of each module (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="for each module (default: %(default)s)"
    )
    parser.add_argument(
        "--before", type=Path, metavar="FILE", help="an earlier mutation.json, whose scores are shown beside"
    )
    arguments = parser.parse_args()
    before = scores(arguments.before) if arguments.before else {}
    if unknown := set(arguments.modules) - set(MODULES):
        parser.error(f"unknown module {', '.join(sorted(unknown))}; name some of {', '.join(MODULES)}")
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("another `make mutation` is running; wait for it") from None
        os.nice(19)  # a test suite beside it goes first
        for name in arguments.modules or MODULES:
            workspace, until = Workspace(name, MODULES[name]), monotonic() + arguments.seconds
            workspace.prepare(until)
            workspace.test(sample(workspace.outcomes(), arguments.mutants), until)
            _report(arguments.mutants, before)
    return 0


def sample(names: Iterable[str], number: int) -> list[str]:
    """Choose `number` of the mutants, by the digest of their names: larger samples include smaller ones."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())[:number]


def score(name: str, outcomes: Mapping[str, str | None], number: int) -> results.Figure:
    """The share of the sample's tested mutants that a test noticed, in percent."""
    chosen = sample(outcomes, number)
    counts = Counter(outcomes[mutant] for mutant in chosen)
    tested = len(chosen) - counts[None]
    noticed = counts[_KILLED] + counts[_TIMEOUT]
    left = f", {counts[None]} of the sample not tested in time" if counts[None] else ""
    return results.Figure(
        f"mutation_{name}",
        100 * noticed / tested if tested else 0.0,
        "%",
        note=f"{noticed} of {tested} noticed, {counts[_SURVIVED]} survived, "
        f"{counts[_NO_TEST]} run by no test; {len(outcomes)} mutants in all{left}",
    )


def scores(file: Path) -> dict[str, float]:
    """Read the scores of an earlier run, by the figures' names."""
    try:
        return {each["name"]: each["value"] for each in json.loads(file.read_text())["figures"]}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SystemExit(f"--before {file}: {error}; name the result file of an earlier run") from None


def _report(number: int, before: Mapping[str, float]) -> None:
    figures, survivors = [], {}
    for name, module in MODULES.items():
        workspace = Workspace(name, module)
        outcomes = workspace.outcomes()
        chosen = sample(outcomes, number)
        if any(outcomes[mutant] for mutant in chosen):
            figure = score(name, outcomes, number)
            peer = "before" if figure.name in before else None
            figures.append(replace(figure, peer=peer, peer_value=before.get(figure.name)))
            survivors[name] = [mutant for mutant in chosen if outcomes[mutant] in (_SURVIVED, _NO_TEST)]
            workspace.show(survivors[name])
    results.write(
        "mutation",
        figures,
        f"python -m benchmarks.mutation --mutants {number}",
        "no clock: mutants counted",
        more={"survivors": survivors},
    )


def _entries() -> list[str]:
    """What lies at the root of the checkout and belongs to it."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    tops = {line.split("/")[0] for line in listed.splitlines()}
    return sorted(top for top in tops if (ROOT / top).exists())


if __name__ == "__main__":
    sys.exit(main())
