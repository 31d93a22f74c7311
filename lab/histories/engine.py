"""Virtual time for programs that wait.

Work that waits is a task, a greenlet of its own: it looks like any blocking code, and while it waits others
run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Any

from greenlet import getcurrent, greenlet

from parts.simulate.timeline import Killed, Timeline, Wakeup


class Fiber(greenlet):
    """Work that can wait; `result` is what it returned, `error` what it raised, once it `is_over`.

    `chain` says how often each function was called in the chain of messages that led here.
    """

    def __init__(self, engine: Engine, name: str, work: Callable[[], Any]) -> None:
        # Its end goes on with what is due, not in the middle of the task that began it.
        super().__init__(parent=engine.hub)
        self.name = name
        self.is_over = False
        self.result: Any = None
        self.failure: BaseException | None = None
        self.chain: Mapping[str, int] = {}
        self._engine = engine
        self._work = work
        self._wakes: Wakeup | None = None
        self._ends: list[Callable[[], object]] = []

    def when_over(self, act: Callable[[], object]) -> None:
        """Call `act` at its end, at once if that has come."""
        if self.is_over:
            act()
        else:
            self._ends.append(act)

    def kill(self) -> None:
        """End it where it waits, as a machine that fails does."""
        if self.is_over:
            return
        if self._wakes is not None:
            self._wakes.is_off = True
        if self is getcurrent():
            raise Killed
        if getcurrent() is not self._engine.hub:
            # Its end leads to the hub, and a task that killed it here would never go on.
            self._engine.after(0.0, self.kill)
            return
        self.throw(Killed)

    def wait_s(self, seconds: float) -> None:
        """Let others run for so long. Only within the task."""
        engine = self._engine
        if engine.is_closed:
            raise Killed
        at_s = engine.now_s + max(0.0, seconds)
        if engine.is_free_until(at_s):
            engine.now_s = at_s
            return
        self._wakes = engine.at(at_s, self._go_on)
        engine.hub.switch()

    def wait_for(self, is_ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `is_ready`, for `seconds` at most; looked at whenever the task is woken."""
        until = self._engine.now_s + seconds
        while not is_ready() and self._engine.now_s < until:
            self.wait_s(until - self._engine.now_s)

    def wake_at(self, moment_s: float) -> None:
        """End its wait at a moment, if it waits for longer."""
        if self._wakes is not None and not self._wakes.is_off and moment_s < self._wakes.at_s:
            self._wakes.is_off = True
            self._wakes = self._engine.at(moment_s, self._go_on)

    def start(self) -> None:
        """Let it begin."""
        self._wakes = self._engine.after(0.0, self._go_on)

    def _go_on(self) -> None:
        if not self.is_over:
            self.switch()

    def run(self) -> None:
        self._engine.begun.add(self)
        try:
            self.result = self._work()
        except Killed as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001 - whoever waits for it looks
            self.failure = error
        self.is_over = True
        self._engine.begun.discard(self)
        for act in self._ends:
            self._engine.after(0.0, act)
        # What is in no cycle leaves memory at once; to collect it as garbage takes longer than to run it.
        del self._work, self._ends
        self._wakes = None


class Engine(Timeline):
    """The clock, what is due, and the tasks. Seconds since the beginning of the history."""

    def __init__(self) -> None:
        super().__init__()
        self.hub = getcurrent()
        self.begun: set[Fiber] = set()
        """The tasks that have begun, and are not over."""
        self.is_closed = False

    def close(self) -> None:
        """End all tasks: what a task that waits holds, Python never frees."""
        self.is_closed = True
        for each in tuple(self.begun):
            each.kill()

    @property
    def task(self) -> Fiber | None:
        """The task that runs, None outside of all."""
        current = getcurrent()
        return current if isinstance(current, Fiber) else None

    def spawn(self, name: str, work: Callable[[], Any]) -> Fiber:
        """Start `work` as a task, from the next moment on."""
        task = Fiber(self, name, work)
        if (caller := self.task) is not None:
            task.chain = caller.chain
        task.start()
        return task

    def is_free_until(self, moment_s: float) -> bool:
        """Return whether nothing else happens up to a moment: a task that waits for it need not be left."""
        due = self._due
        while due and due[0][2].is_off:
            heapq.heappop(due)
        return moment_s <= self._until_s and (not due or due[0][0] > moment_s)

    def sleep(self, seconds: float) -> None:
        """Let the running task wait; outside of all tasks nothing waits."""
        if (task := self.task) is not None:
            task.wait_s(seconds)
