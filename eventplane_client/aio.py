"""The client for programs on asyncio: the same calls in a thread, as no library below speaks asyncio.

One thread serves one client, so its calls run one after the other; a cancelled call runs to its end there,
and an event that it got by then is handed out by the next call of the same name, or comes again once the
inbox is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from eventplane.conversation.open_requests import TIMEOUT_S, Replies
from eventplane.envelope import Envelope
from eventplane_client.client import INBOX, Client
from eventplane_client.errors import ClosedError, NothingThereError
from eventplane_client.inbox import Inbox, Received
from eventplane_client.reader import LONG_POLL_S, Doubt
from eventplane_client.settings import check_arguments

if TYPE_CHECKING:
    from eventplane_client.cloud_event import AnyEvent

T = TypeVar("T")

_SLICE_S = 1.0
"""How long the thread waits at a time, seconds: so long a put of the same client may wait for a get."""


class AsyncInbox:
    """See `eventplane_client.Inbox`."""

    def __init__(self, inbox: Inbox, client: AsyncClient) -> None:
        self._inbox = inbox
        self._client = client
        self._got: list[Envelope] = []
        self._received: list[Received] = []

    @property
    def in_force_from(self) -> datetime | None:
        """See `Inbox`."""
        return self._inbox.in_force_from

    async def get(self, timeout_s: float = LONG_POLL_S) -> Envelope:
        """The next event; the one before is handled. Raises what `Inbox.get` raises."""
        return await self._next(self._inbox.get, self._got, timeout_s)

    async def receive(self, timeout_s: float = LONG_POLL_S) -> Received:
        """The next event, to be settled by `ack` or `nack`. Raises what `Inbox.receive` raises."""
        return await self._next(self._inbox.receive, self._received, timeout_s)

    async def ack(self, received: Received, answer: object = None) -> None:
        """See `Received.ack`."""
        await self._client.run(lambda: received.ack(answer))

    async def nack(self, received: Received, error: BaseException | str = "nack") -> None:
        """See `Received.nack`."""
        await self._client.run(lambda: received.nack(error))

    async def __aiter__(self) -> AsyncIterator[Envelope]:
        while True:
            try:
                event = await self.get()
            except NothingThereError:
                continue
            except ClosedError:
                return
            yield event

    async def close(self, error: BaseException | None = None) -> None:
        """See `Inbox.close`; an event that only a cancelled call got comes again."""
        await self._client.run(lambda: self._end(error))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(error)

    def _end(self, error: BaseException | None) -> None:
        """Close in the client's thread, after what a cancelled call still fetches there."""
        self._received.clear()
        try:
            self._got.pop()
        except IndexError:
            self._inbox.close(error)
        else:
            self._inbox.close(ClosedError(self._inbox.participant))

    async def _next(self, take: Callable[[float], T], taken: list[T], timeout_s: float) -> T:
        """What `take` gives; a call that is cancelled leaves it in `taken`, for the next one."""

        def fetch(slice_s: float) -> None:
            if not taken:
                taken.append(take(slice_s))

        check_arguments(timeout_s=timeout_s)
        give_up = asyncio.get_running_loop().time() + timeout_s
        while True:
            left = give_up - asyncio.get_running_loop().time()
            try:
                await self._client.run(partial(fetch, max(0.0, min(left, _SLICE_S))))
                with suppress(IndexError):  # another task has closed the inbox, or was quicker
                    return taken.pop()
            except NothingThereError:
                if left <= _SLICE_S:
                    raise NothingThereError(self._inbox.participant, timeout_s) from None


class AsyncClient:
    """See `eventplane_client.Client`; `client` is used by nobody else."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._thread = ThreadPoolExecutor(1, f"{client.participant}-client")

    async def put(
        self,
        event: AnyEvent,
        timeout_s: float = 30.0,
        *,
        best_effort: bool = False,
    ) -> None:
        """See `Client.put`."""
        await self.run(lambda: self._client.put(event, timeout_s, best_effort=best_effort))

    async def send(self, event: AnyEvent, timeout_s: float = 30.0) -> None:
        """See `Client.send`."""
        await self.run(lambda: self._client.send(event, timeout_s))

    async def flush(self, timeout_s: float = 30.0) -> None:
        """See `Client.flush`."""
        await self.run(lambda: self._client.flush(timeout_s))

    async def request(
        self,
        event: AnyEvent,
        timeout_s: float = TIMEOUT_S,
        *,
        durable: bool = True,
        expires: bool = False,
    ) -> Replies:
        """See `Client.request`; in a thread of its own, so that other calls go on while it waits."""
        return await asyncio.to_thread(
            self._client.request, event, timeout_s, durable=durable, expires=expires
        )

    async def state(self, key: str, timeout_s: float = 30.0) -> Envelope | None:
        """See `Client.state`."""
        return await self.run(lambda: self._client.state(key, timeout_s))

    async def subscribe(
        self, filter: object = None, *, name: str = INBOX, on_doubt: Doubt | None = None
    ) -> AsyncInbox:
        """See `Client.subscribe`; `on_doubt` is called in the client's thread."""
        return AsyncInbox(
            await self.run(lambda: self._client.subscribe(filter, name=name, on_doubt=on_doubt)), self
        )

    async def unsubscribe(self, name: str = INBOX) -> None:
        """See `Client.unsubscribe`."""
        await self.run(lambda: self._client.unsubscribe(name))

    async def announce(self, filters: Iterable[object]) -> None:
        """See `Client.announce`."""
        await self.run(lambda: self._client.announce(filters))

    async def withdraw(self) -> None:
        """See `Client.withdraw`."""
        await self.run(self._client.withdraw)

    async def close(self) -> None:
        """See `Client.close`."""
        await self.run(self._client.close)
        self._thread.shutdown(wait=False)

    async def run(self, action: Callable[[], T]) -> T:
        """The answer of `action`, which runs in the client's thread."""
        # With the task's own context: what it puts while it handles an event belongs to the event's trace.
        return await asyncio.get_running_loop().run_in_executor(self._thread, copy_context().run, action)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
