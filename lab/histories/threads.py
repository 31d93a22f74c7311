"""Threads that are tasks, with what waits for them: what the functions' and the client's wiring passes in."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from threading import Event, Thread
from types import TracebackType
from typing import Any, Never, TypeVar

from eventplane.values import RandomBytes
from eventplane_client.system import System
from lab.histories.engine import Engine, Fiber
from lambdas.common.system import Call, Pool, Threads
from parts.simulate.timeline import Killed

T = TypeVar("T")


class TaskThreads(Threads, Executor):
    """Threads that are tasks, of a `program`: see `lambdas.common.system.Threads`."""

    def __init__(self, engine: Engine, program: str) -> None:
        self._engine = engine
        self._program = program

    def pool(self, size: int) -> Pool:  # noqa: ARG002 - who asks bounds how many calls there are
        return self

    def submit(self, call: Callable[..., T], /, *given: Any, **named: Any) -> Future[T]:
        future: Future[T] = TaskFuture(self)
        caller = self._engine.task

        def work() -> None:
            try:
                future.set_result(call(*given, **named))
            except Exception as error:  # noqa: BLE001 - the caller gets it
                future.set_exception(error)
            except Killed:
                if caller is not None:
                    # Its process ends as a whole.
                    caller.kill()
                raise

        future.set_running_or_notify_cancel()
        task = self._engine.spawn(f"{self._program} thread", work)
        if caller is not None:
            caller.when_over(lambda: _end_with(task, caller))
            future.add_done_callback(lambda _: caller.wake_at(self._engine.now_s))
        return future

    def ended(self, calls: Collection[Call[T]], timeout_s: float) -> list[Call[T]]:
        if (task := self._engine.task) is not None:
            task.wait_for(lambda: any(each.done() for each in calls), timeout_s)
        return [each for each in calls if each.done()]


class TaskFuture(Future[T]):
    """A call whose result a task can wait for."""

    def __init__(self, threads: TaskThreads) -> None:
        super().__init__()
        self._threads = threads

    def result(self, timeout: float | None = None) -> T:
        self._threads.ended([self], FOR_EVER_S if timeout is None else timeout)
        return super().result(0)


def _end_with(task: Fiber, caller: Fiber) -> None:
    """A thread goes on after the call that started it, but not after the end of its process."""
    if isinstance(caller.failure, Killed):
        task.kill()


class TaskEvent(Event):
    """See `threading.Event`."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self._is_set = False
        self._waiting: list[Fiber] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for task in self._waiting:
            task.wake_at(self._engine.now_s)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if (task := self._engine.task) is not None:
            self._waiting.append(task)
            try:
                task.wait_for(self.is_set, FOR_EVER_S if timeout is None else timeout)
            finally:
                self._waiting.remove(task)
        return self._is_set


class TaskLock:
    """See `threading.RLock`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._owner: Fiber | None = None
        self._depth = 0
        self._waiting: list[Fiber] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: ARG002 - no caller has a timeout
        task = self._engine.task
        while self._owner is not None and self._owner is not task and not self._owner.is_over:
            if not blocking or task is None:
                return False
            self._waiting.append(task)
            try:
                task.wait_s(FOR_EVER_S)
            finally:
                self._waiting.remove(task)
        self._owner = task
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            for task in self._waiting[:1]:
                task.wake_at(self._engine.now_s)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Program:
    """A process of several tasks, which end together."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self.tasks: list[Fiber] = []

    def start(self, name: str, run: Callable[[], object]) -> Fiber:
        """Start one of its tasks."""
        task = self._engine.spawn(name, run)
        self.tasks.append(task)
        return task

    def kill(self) -> None:
        """End all of them."""
        for task in self.tasks:
            task.kill()
        self.tasks.clear()

    def _start_thread(self, name: str, run: Callable[[], object]) -> Thread:
        self.start(name, run)
        return _Joined()

    def system(self, random_bytes: RandomBytes) -> System:
        """The client library's view of this machine."""
        engine = self._engine
        return System(
            lambda: engine.now_s,
            lambda: 1_000_000 * engine.now_ms,
            lambda: ("boot", round(1_000 * engine.now_s)),
            random_bytes,
            self._start_thread,
            lambda: TaskLock(engine),
            _no_condition,
            lambda: TaskEvent(engine),
        )


class _Joined(Thread):
    def join(self, timeout: float | None = None) -> None:
        """Nothing waits for the end of a thread here."""


def _no_condition() -> Never:
    raise NotImplementedError("a reader of a queue needs no condition")


FOR_EVER_S = 1e9
