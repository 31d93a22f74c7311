"""The check of payloads against the contract's JSON Schemas, within bounds of computing time.

`known` and `strict` event types are checked; every other event is passed without being read again.
"""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from eventplane.contract import Contract, SchemaCheck
from eventplane.dead_letter import Refusal
from eventplane.envelope import Envelope
from eventplane.errors import EventPlaneError
from eventplane.payloads import payload_problem, payload_refusal, schemas_of


class CpuLimitError(EventPlaneError):
    """The block computed for longer than `seconds`."""

    seconds: float
    message = "it takes longer than {seconds:g} s to compute; bound what it works on"


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raises `CpuLimitError` inside the block once this process has computed for `seconds` in it.

    Computing time, since a machine that stands still proves nothing about the input. A regular expression is
    interrupted as well. Signals belong to the main thread, where Lambda calls handlers; others are not bound.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    ended = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        if not ended:
            raise CpuLimitError(seconds)

    earlier = signal.signal(signal.SIGVTALRM, stop)
    # A full collection of garbage takes as long as there are objects: the input must not pay for it.
    collects = gc.isenabled()
    gc.disable()
    # Again and again: Python swallows what is raised while an object is finalized.
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, seconds)
    try:
        try:
            yield
        finally:
            ended = True  # one more signal would keep the lines below from being done
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if collects:
            gc.enable()
        signal.signal(signal.SIGVTALRM, earlier)


EVENT_SECONDS: Final = 0.5
"""Most computing time for one payload, seconds. Ours: 97 KB of numbers, 33,000, take a third of it."""

MESSAGE_SECONDS: Final = 5.0
"""Most computing time for the payloads of one queue message, seconds. Ours: a batch of ten messages with one
that is made to be slow still fits the function's timeout."""

URGENT_MESSAGE_SECONDS: Final = 1.0
"""The same in an urgent queue. Ours: a message there holds a few events, and its function ends sooner."""

Check = Callable[[Envelope], Refusal | None]
"""Why an event is refused, or None."""


@dataclass(slots=True)
class Spent:
    """The computing time that a queue message has taken, seconds."""

    seconds: float = 0.0


class SlowPayloadsError(EventPlaneError):
    """The payloads of one queue message take longer than `seconds` to check: somebody has to look at it."""

    seconds: float
    message = (
        "the payloads of one message take longer than {seconds:g} s to check; "
        "find the slow schema or the sender, then redrive the message"
    )


class PayloadCheck:
    """Checks the payloads of the event types that `contract` has checked; each schema is compiled once, for
    the first of its events. `cpu_time` gives the seconds computed."""

    def __init__(
        self, contract: Contract, cpu_time: Callable[[], float], message_s: float = MESSAGE_SECONDS
    ) -> None:
        self._cpu_time = cpu_time
        self._message_s = message_s
        types = contract.event_types.values()
        self._types = {each.name for each in types if each.schema_check is not SchemaCheck.NONE}
        self._contract = contract
        self._registry: Any = None
        self._validators: dict[str, Any] = {}

    def of_message(self, spent: Spent | None = None) -> Check:
        """The check of one queue message's events, which share a bound on computing time.

        What other checks of the message have `spent` counts as well. The check raises `SlowPayloadsError`.
        """
        shared = spent or Spent()

        def check(event: Envelope) -> Refusal | None:
            if event.type not in self._types:
                return None
            if shared.seconds >= self._message_s:
                raise SlowPayloadsError(self._message_s)
            before = self._cpu_time()
            try:
                return payload_refusal(self._contract, event, self._problem)
            finally:
                shared.seconds += self._cpu_time() - before

        return check

    def _problem(self, event: Envelope, id: str) -> str | None:
        # At the first event that needs it: a router that sees alarms only never loads the library.
        validator = self._validators.get(id) or self._validator(id)
        try:
            with cpu_limit(EVENT_SECONDS):
                return payload_problem(event, validator)
        except CpuLimitError as error:
            return str(error)

    def _validator(self, id: str) -> Any:
        """Make the validator of the schema `id`."""
        # A fifth of a second, which no alarm waits for.
        from jsonschema import Draft202012Validator
        from referencing import Registry
        from referencing.jsonschema import DRAFT202012

        schemas = schemas_of(self._contract)
        if self._registry is None:
            # Without a registry of its own the library would fetch what a `$ref` names from the network.
            self._registry = Registry().with_resources(
                (id, DRAFT202012.create_resource(schema)) for id, schema in schemas.items()
            )
        made = self._validators[id] = Draft202012Validator(schemas[id], registry=self._registry)
        return made
