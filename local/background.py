"""Work in a thread of its own while a `with` block runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from http.server import HTTPServer
from types import TracebackType
from typing import Final, Self

_POLL_S: Final = 0.05
"""How often a server looks whether it is to end."""


class Background(ABC):
    """`_run` begins with the block; it returns soon after `_ending` is set, which the block's end does."""

    def __init__(self, name: str) -> None:
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def _run(self) -> None: ...

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()


class BackgroundServer(Background):
    """Serves HTTP at `url` while the `with` block runs."""

    def __init__(self, name: str, server: HTTPServer) -> None:
        super().__init__(name)
        self._server = server

    @property
    def url(self) -> str:
        """The server's address, without a path."""
        return f"http://{self._server.server_address[0]!s}:{self._server.server_port}"

    def _run(self) -> None:
        self._server.serve_forever(_POLL_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        super().__exit__(kind, error, trace)
        self._server.server_close()
