"""Run the forwarder's command line: `python -m edge` in a checkout, `__main__` of the device's artifact."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _LazyModule(ModuleType):
    """Takes the place of a module of the standard library until something reads an attribute of it.

    (importlib's LazyLoader loads it as soon as it is imported again.)
    """

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(__import__(self.__name__), name)

    @staticmethod
    def get_annotations(kind: type) -> dict[str, Any]:
        """Return what `dataclasses` of Python 3.13 asks `inspect` for."""
        annotations: dict[str, Any] = vars(kind).get("__annotations__", {})
        return annotations


def be_lazy() -> None:
    """Keep from loading what the standard library imports and the forwarder does not use.

    `dataclasses` imports `inspect` for the docstring of a dataclass that has none, and ours have one: 0.7
    MiB, with `ast` and `dis`. `urllib.parse`, which `pathlib` imports, takes `ipaddress` for addresses in
    brackets, `logging` takes `traceback` for an exception, `ssl` takes `base64` for certificates, `socket`
    takes `selectors` to send files, `pathlib` takes `ntpath` for another system: 0.7 MiB together.
    """
    for name in ("base64", "inspect", "ipaddress", "ntpath", "selectors", "traceback"):
        sys.modules.setdefault(name, _LazyModule(name))


def program() -> None:
    """Run the command of this process's arguments, and end the process."""
    be_lazy()
    from edge.command_line import end, main

    end(main(sys.argv[1:]))


if __name__ == "__main__":
    program()
