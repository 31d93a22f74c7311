"""`python -m lab.up [down | publish | status]`: a plane that stays on this machine, until it is stopped.

Exit status 0 when done, 1 when that was not possible, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from contract import CONTRACT_FILE
from eventplane.errors import EventPlaneError
from eventplane.sinks import url_problem
from lab.errors import LocalError
from lab.process import RunningError
from lab.up.folder import FOLDER, NotUpError, PlaneFolder, stop
from lab.up.run import publish, tell, up


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.up", description="A plane that stays on this machine."
    )
    parser.add_argument(
        "verb",
        nargs="?",
        choices=["start", "down", "publish", "status"],
        default="start",
        help="start it and stay; end it; put the changed contract in force; print where it is",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=FOLDER,
        help="of its files; another one for a second plane: %(default)s",
    )
    parser.add_argument(
        "--contract",
        type=Path,
        metavar="FILE",
        default=CONTRACT_FILE,
        help="start: the contract in YAML, which publish reads again; default: the checkout's",
    )
    parser.add_argument(
        "--webhook",
        type=_webhook,
        metavar="NAME=URL",
        action="append",
        default=[],
        help="start, publish: where the events of a participant go whose inbox is a webhook; may be repeated",
    )
    options = parser.parse_args()
    console, folder = Console(), PlaneFolder(options.folder)
    try:
        match options.verb:
            case "down":
                stop(folder)
                console.print("the plane is down")
            case "publish":
                publish(folder, console, dict(options.webhook))
            case "status":
                tell(folder.read(), folder, console)
            case _:
                return _start(folder, console, options.contract, dict(options.webhook))
    except (LocalError, EventPlaneError) as error:
        # A path may hold brackets, which are no markup.
        console.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    except (BotoCoreError, ClientError) as error:
        remedy = "look at the terminal of `make up`; where it has ended, start it anew"
        console.print(
            f"the local cloud refused: {error}; {remedy}", style="red", markup=False, soft_wrap=True
        )
        return 1
    except OSError as error:
        place, remedy = (
            error.filename or folder.path,
            "name a folder with room that can be written by --folder",
        )
        console.print(f"{place}: {error.strerror}; {remedy}", style="red", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        if options.verb != "start":
            console.print("stopped before the end; repeat the command", style="red")
            return 1
        console.print("the plane is down")
    return 0


def _webhook(text: str) -> tuple[str, str]:
    name, is_pair, url = text.partition("=")
    if not is_pair or (problem := url_problem(url, is_emulated=True)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no NAME=URL{f': the URL {problem}' if is_pair else ''}; "
            "write for example laundry-service=http://127.0.0.1:8080/events"
        )
    return name, url


def _start(folder: PlaneFolder, console: Console, contract_file: Path, webhooks: Mapping[str, str]) -> int:
    """Bring the plane up; if one is up already, print where it is."""
    try:
        up(folder, console, contract_file, webhooks)
    except SystemExit:
        console.print("the plane is down")  # by `make down`
        return 0
    except RunningError:
        _tell_of_other(folder, console)
    return 1


def _tell_of_other(folder: PlaneFolder, console: Console) -> None:
    try:
        running = folder.read()
    except NotUpError:
        console.print("a plane is starting already; wait for it, or end it with `make down`")
        return
    console.print("a plane is up already; `make down` ends it", style="yellow")
    tell(running, folder, console)


if __name__ == "__main__":
    sys.exit(main())
