"""Run the forwarder's command line: `python -m edge` in a checkout, `__main__` of the device's artifact."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _LazyInspect(ModuleType):
    """Takes the place of the module `inspect` until something reads an attribute of it.

    `dataclasses` imports it for the docstring of a dataclass that has none, and ours have one. It takes 0.7
    MiB, with `ast`, `dis` and `tokenize`. (importlib's LazyLoader loads it as soon as it is imported again.)
    """

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get("inspect") is self:
            del sys.modules["inspect"]
        return getattr(__import__("inspect"), name)


if __name__ == "__main__":
    sys.modules.setdefault("inspect", _LazyInspect("inspect"))
    from edge.command_line import end, main

    end(main(sys.argv[1:]))
