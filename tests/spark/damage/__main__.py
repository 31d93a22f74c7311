"""`python -m tests.spark.damage KIND ... ARCHIVE`: damage a finished archive by hand, in place.

Prints what an audit must report of it; `--list` prints the kinds. The package reads and writes gzip and JSON
itself: it imports neither generator nor audit nor core, so that it shares no misunderstanding with them. It
expects an archive without a fault: a day of five devices that report every hour, two contracts, a webhook.
"""

import argparse
import json
from pathlib import Path

from tests.spark.damage.expected import KINDS
from tests.spark.damage.kinds import MEANINGS, damage


class _List(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        for name, meaning in MEANINGS.items():
            print(f"{name:26}{meaning}")
        parser.exit()


def main() -> None:
    """Damage and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.damage", description=__doc__)
    parser.add_argument("--list", nargs=0, action=_List, help="print all kinds")
    parser.add_argument("kinds", nargs="+", choices=KINDS, metavar="KIND")
    parser.add_argument("archive", type=Path, metavar="ARCHIVE")
    arguments = parser.parse_args()
    print(json.dumps(damage(arguments.archive, arguments.kinds).document(), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
