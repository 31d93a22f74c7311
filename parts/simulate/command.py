"""`eventplane contract simulate`: a contract under traffic and weather, before anything is deployed."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventplane.values import MAX_TIME_MS, whole_number
from operations.command import DONE, FAILED, ChoiceError, contract_of, count, day, positive, present, say
from operations.command_line import WRONG_WORDS

if TYPE_CHECKING:
    from parts.simulate.one_home import Simulation

_LONGEST_D: Final = 366.0
_MOST_HOMES: Final = 10_000
_LEAST_BYTES: Final = 4 * 1024**2
"""The smallest spool (`edge/settings.py`)."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "contract",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="the contract, YAML or compiled (.json); default: this project's, otherwise the plane's own",
    )
    parser.add_argument(
        "--traffic", type=Path, metavar="FILE", help="events an hour by type; with --learn it is written"
    )
    parser.add_argument(
        "--weather",
        default="calm",
        metavar="FILE|NAME",
        help="a file, or calm, storm, rural-line, blackout or region; default: %(default)s",
    )
    parser.add_argument("--show", metavar="NAME", help="print one of these weathers as a file, to edit it")
    parser.add_argument(
        "--homes", type=count, default=10, metavar="N", help="homes to simulate; default: %(default)s"
    )
    parser.add_argument(
        "--days", type=positive, default=7.0, metavar="D", help="days to simulate; default: %(default)g"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="S", help="of the random draws; default: %(default)s"
    )
    parser.add_argument(
        "--spool", type=count, metavar="BYTES", help="the devices' `spool_capacity_bytes`; default: theirs"
    )
    parser.add_argument(
        "--jobs", type=count, metavar="N", help="homes at a time; default: one for each processor"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        default=Path("build/simulation.html"),
        help="the page; default: %(default)s",
    )
    parser.add_argument("--learn", metavar="ARCHIVE", help="learn the traffic from a folder or s3://BUCKET")
    parser.add_argument("--date", type=day, metavar="DAY", help="the UTC day of the archive to learn from")
    parser.set_defaults(failed=WRONG_WORDS)  # 1 is a result
    parser.epilog = (
        "Exit status: 0 no alarm is lost, 1 one is (--learn: a record is damaged), 2 wrong usage, files or "
        "archive."
    )


def run(options: argparse.Namespace) -> int:
    """Simulate, write the page, and print what was found; 1 if an alarm is lost."""
    from parts.simulate.weather import weather_file

    if options.show:
        text = weather_file(options.show).read_text("utf-8")
        present(options, {"weather": options.show, "toml": text}, text.rstrip())
        return DONE
    if options.traffic is None:
        raise ChoiceError("say what homes send: --traffic FILE; --learn ARCHIVE --date DAY writes one")
    return _learn(options) if options.learn else _simulate(options)


def _learn(options: argparse.Namespace) -> int:
    from eventplane.ledger import TAP
    from operations.archive import Days, archive_of, say_damaged
    from operations.cloud import enter
    from parts.simulate.errors import NothingLearntError
    from parts.simulate.traffic import learnt, traffic_text

    if options.date is None:
        raise ChoiceError("say which day to learn from: --date DAY")
    options.archive = options.learn
    cloud = enter(options.env) if options.learn.startswith("s3://") else None
    # The tap writes what came around midnight into the next day's folder.
    days = Days(archive_of(options, cloud), options.date, options.date + timedelta(days=1))
    flows, homes = learnt(days.records(TAP, lambda line: _of_day(line, options.date)))
    say_damaged(days)
    if not flows:
        raise NothingLearntError(options.learn, options.date.isoformat())
    source = f"Learnt from {options.learn}, {options.date}: the mean of {homes} homes."
    options.traffic.parent.mkdir(parents=True, exist_ok=True)
    options.traffic.write_text(traffic_text(flows, source), "utf-8")
    document = {"traffic": str(options.traffic), "types": len(flows), "homes": homes}
    present(options, document, f"{options.traffic}: {len(flows)} types of events of {homes} homes")
    return FAILED if days.damaged else DONE


def _of_day(line: bytes, wanted: date) -> dict[str, Any] | None:
    record = json.loads(line)
    accepted_ms = whole_number(record["accepted_at_ms"], MAX_TIME_MS)
    accepted = datetime.fromtimestamp(accepted_ms / 1_000, UTC).date()
    return record if accepted == wanted and record["event"] else None


def _simulate(options: argparse.Namespace) -> int:
    from parts.simulate.cloud import CloudStage
    from parts.simulate.page import page
    from parts.simulate.report import document, text
    from parts.simulate.run import run_homes

    plan = _plan(options)
    # A page that cannot be written is known before an hour of work.
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.open("a").close()
    homes = run_homes(plan, options.homes, options.jobs or _processors(), Progress().tell)
    found = document(plan, homes, CloudStage(plan, homes).run())
    options.output.write_text(page(found), "utf-8")
    present(options, found, f"{text(found)}\n\n{options.output}")
    return FAILED if found["alarms"]["lost"] else DONE


def _plan(options: argparse.Namespace) -> Simulation:
    from parts.simulate.one_home import Simulation
    from parts.simulate.traffic import read_traffic
    from parts.simulate.weather import read_weather

    if options.days > _LONGEST_D:
        raise ChoiceError(f"--days {options.days:g} is too long; simulate up to {_LONGEST_D:g}")
    if options.homes > _MOST_HOMES:
        raise ChoiceError(f"--homes {options.homes} are too many; simulate up to {_MOST_HOMES}")
    if options.spool is not None and options.spool < _LEAST_BYTES:
        raise ChoiceError(f"--spool {options.spool} is too small for a forwarder; give {_LEAST_BYTES}")
    contract = contract_of(options)
    settings = {} if options.spool is None else {"spool_capacity_bytes": options.spool}
    traffic = read_traffic(options.traffic, contract)
    weather = read_weather(options.weather, contract, [each.type for each in traffic])
    return Simulation(contract, traffic, weather, options.days, options.seed, settings)


def _processors() -> int:
    import os

    return len(os.sched_getaffinity(0))


class Progress:
    """Tells the person each tenth that is done."""

    def __init__(self) -> None:
        self._told = 0

    def tell(self, share: float) -> None:
        """Report the `share` that is done."""
        if (tenth := int(share * 10)) > self._told:
            self._told = tenth
            say(f"{tenth * 10} % simulated")
