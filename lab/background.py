"""Work in a thread of its own while a `with` block runs."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from http.server import HTTPServer
from typing import Any, Final, Self

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

    def __exit__(self, *_: object) -> None:
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

    def __exit__(self, *raised: object) -> None:
        self._server.shutdown()
        super().__exit__(*raised)
        self._server.server_close()


class BackgroundLoop(Background):
    """An event loop. `_end` ends what it serves, when the block ends."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._loop = asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` on the loop, and wait for it."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @abstractmethod
    async def _end(self) -> None:
        """Close the servers by `close_server`, and let the present connections end."""

    def _run(self) -> None:
        self._loop.run_forever()

    def __exit__(self, *raised: object) -> None:
        self.run(self._end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        super().__exit__(*raised)
        self._loop.close()

    async def _end_all(self) -> None:
        """Return when all sockets are closed: a loop that stops earlier leaves them open."""
        await self._end()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        await asyncio.sleep(0)  # Aborted transports close their sockets in one more turn.


async def close_server(server: asyncio.Server) -> None:
    """Accept no more connections. A connection that was just accepted still gets its handler.

    asyncio makes its transport one turn later, and loses it if the server was closed meanwhile.
    """
    for each in server.sockets:
        asyncio.get_running_loop().remove_reader(each)
    await asyncio.sleep(0)
    server.close()
