"""`python -m lab.benchmarks.audit.duckdb_run ARCHIVE OUTPUT raw|compacted`: the questions to DuckDB."""

import json
import sys
from pathlib import Path
from time import perf_counter

import duckdb

from eventplane.contract import load_compiled
from lab.benchmarks.audit.questions import STEPS, QuestionForm, statements


def main(archive: str, output: str, form: str) -> None:
    """Ask all of them, on two threads.

    Its tables lie in a file and it spills beside it, as Spark does: in memory, 2 GB end at 5 million.
    """
    Path(output).mkdir(parents=True)
    files = sorted(Path(archive, "contracts").glob("*.json"))
    contracts = [load_compiled(path.read_text(), str(path)) for path in files]
    session = duckdb.connect(
        f"{output}/tables.db",
        config={"threads": 2, "memory_limit": "4GB", "preserve_insertion_order": "false"},
    )
    steps: dict[str, float] = {}
    for name, statement in statements(archive, output, contracts, QuestionForm(form)):
        began = perf_counter()
        session.execute(statement)
        steps[name] = round(perf_counter() - began, 3)
    Path(output, STEPS).write_text(json.dumps(steps))


if __name__ == "__main__":
    main(*sys.argv[1:])
