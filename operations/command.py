"""What a command of the operator is: arguments in, text out, an exit status that scripts can tell apart."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.errors import EventPlaneError
from operations.errors import explained

DONE: Final = 0
FAILED: Final = 1
INCOMPLETE: Final = 3
"""Exit statuses; 2 is that of arguments that cannot be read. Incomplete: nothing was found, or not all of it
could be done; the output says what."""


def run(command: Callable[[], int]) -> int:
    """The exit status of `command`; what is wrong goes to standard error with its remedy."""
    try:
        return command()
    except EventPlaneError as error:
        say(str(error))
    except (ClientError, BotoCoreError) as error:
        say(str(explained(error)))
    except BrokenPipeError:
        sys.stderr.close()  # whoever read the output has seen enough
    except KeyboardInterrupt:
        say("stopped; nothing is lost, and the command can be repeated")
    return FAILED


def answer(text: str) -> None:
    """Print a result."""
    sys.stdout.write(text + "\n")


def answer_json(document: Any) -> None:
    """Print a result as JSON."""
    answer(json.dumps(document, indent=2, ensure_ascii=False))


def say(text: str) -> None:
    """Tell the person, not the program that reads the output."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
