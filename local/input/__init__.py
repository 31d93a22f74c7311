"""The input of the demo: events of homes, simulated or real, in time order.

`open_input` is the one entry; what it returns is iterated for `InputEvent`s.
"""

from local.input.model import (
    HomeInput,
    InputBoundError,
    InputError,
    InputEvent,
    InputFileError,
    InputMissingError,
    InputRowError,
)
from local.input.selection import DEFAULT_EVENTS, DEFAULT_HOMES, Input, open_input, read_bound

__all__ = [
    "DEFAULT_EVENTS",
    "DEFAULT_HOMES",
    "HomeInput",
    "Input",
    "InputBoundError",
    "InputError",
    "InputEvent",
    "InputFileError",
    "InputMissingError",
    "InputRowError",
    "open_input",
    "read_bound",
]
