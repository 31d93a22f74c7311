"""A connection to a NATS server for code that blocks: nats-py runs in a thread of its own."""

import asyncio
import json
import os
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

import nats
from nats.aio.client import Client as Nats

from eventplane.errors import EventPlaneError
from eventplane_nats.rights import inbox_prefix

CONNECT_S: Final = 2.5
"""Longest that connecting takes, seconds."""

_MARGIN_S: Final = 0.5
"""How much longer than nats-py the caller waits for it, seconds: nats-py names what is wrong."""

CREDENTIALS: Final = "EVENTPLANE_NATS_CREDENTIALS"
"""The variable with the user and the password, `{"user": "...", "password": "..."}`."""

SECRET: Final = "EVENTPLANE_NATS_SECRET"  # noqa: S105 - the name of a variable
"""The variable with the name of the secret in AWS Secrets Manager that holds the same; the stacks set it."""

TLS: Final = "EVENTPLANE_NATS_TLS"
"""`first`: begin with TLS, as nats-server 2.10.4 can be told to. Otherwise the server says in plain text
whether it wants TLS, which an attacker between the two can change."""

SECRET_S: Final = 1.0
"""Longest that AWS Secrets Manager takes to be reached, and to answer, seconds."""

T = TypeVar("T")


class NatsAddressError(EventPlaneError):
    """`address` is not what the package connects to."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address!r} is no address; write nats://HOST:PORT/NAME, without user and password")
        self.address = address


def server_and_name(address: str) -> tuple[str, str]:
    """Return the server's URL and the name in `nats://HOST:PORT/NAME`. Raises `NatsAddressError`."""
    parts = urlsplit(address)
    name = parts.path.removeprefix("/")
    if parts.scheme != "nats" or not parts.hostname or "@" in parts.netloc or not name or "/" in name:
        raise NatsAddressError(address)
    return f"nats://{parts.netloc}", name


class NatsLink:
    """Connected to `server` as the user `name`, and again after each loss, until `close`.

    Raises what nats-py raises, `OSError`, and `TimeoutError` if the server does not answer; of a secret that
    cannot be read what boto3 raises.
    """

    def __init__(self, server: str, name: str, environment: Mapping[str, str] = os.environ) -> None:
        user, password = _credentials(environment)
        self._loop = _Loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"nats-{name}", daemon=True)
        self._thread.start()
        self.nats = Nats()
        self._last_error: Exception | None = None
        try:
            self.run(
                self.nats.connect(
                    server,
                    name=name,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=1,
                    connect_timeout=2,
                    error_cb=self._note,
                    inbox_prefix=inbox_prefix(name),
                    tls_handshake_first=environment.get(TLS) == "first",
                    user=user,
                    password=password,
                ),
                CONNECT_S,
            )
        except TimeoutError as error:
            self._end()
            raise self._named(error) from error
        except BaseException:
            self._end()
            raise
        self.jetstream = self.nats.jetstream()

    def run(self, action: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Return what `action` returns within `timeout_s` seconds. Raises `TimeoutError`."""
        try:
            future = asyncio.run_coroutine_threadsafe(action, self._loop)
        except RuntimeError as error:
            action.close()
            raise nats.errors.ConnectionClosedError from error
        try:
            return future.result(timeout_s + _MARGIN_S)
        except TimeoutError:
            future.cancel()
            raise

    def close(self, timeout_s: float = CONNECT_S) -> None:
        """Send what is still buffered as far as that takes `timeout_s` seconds, and end."""
        try:
            self.run(self.nats.close(), timeout_s)
        except (nats.errors.Error, OSError, TimeoutError):
            pass  # what was not sent comes again
        finally:
            self._end()

    async def _note(self, error: Exception) -> None:
        # nats-py logs a traceback for each loss of the connection otherwise; whoever waits is told. What the
        # server said, such as a wrong password, says more than the connection that it reset after it.
        if not isinstance(self._last_error, nats.errors.Error) or isinstance(error, nats.errors.Error):
            self._last_error = error

    def _named(self, error: Exception) -> Exception:
        """What nats-py met while it tried, such as a wrong password, or `error`."""
        return error if self._last_error is None else self._last_error

    def _end(self) -> None:
        asyncio.run_coroutine_threadsafe(self._loop.end_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that can close what its tasks have opened: nats-py does not when it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self._opened = WeakSet[asyncio.WriteTransport]()

    async def create_connection(self, *arguments: Any, **named: Any) -> Any:
        transport, protocol = await super().create_connection(*arguments, **named)
        self._opened.add(transport)
        return transport, protocol

    async def end_all(self) -> None:
        """Cancel all tasks and abort all connections."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for transport in self._opened:
            transport.abort()
        await asyncio.sleep(0)  # they close their sockets in one more turn


def _credentials(environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    document = environment.get(CREDENTIALS)
    if secret := environment.get(SECRET):
        import boto3
        from botocore.config import Config

        once = {"mode": "standard", "total_max_attempts": 1}
        config = Config(connect_timeout=SECRET_S, read_timeout=SECRET_S, retries=once)
        client = boto3.client("secretsmanager", config=config)
        document = client.get_secret_value(SecretId=secret)["SecretString"]
    if not document:
        return None, None
    found = json.loads(document)
    return str(found["user"]), str(found["password"])
