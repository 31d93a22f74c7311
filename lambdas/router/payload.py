"""The check of payloads against the contract's JSON Schemas: this is the only file that knows the library.

`known` and `strict` event types are checked; every other event is passed without being read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from eventplane import strict_json
from eventplane.contract import Contract, Downlink, EventType, SchemaCheck
from eventplane.dead_letter import Refusal
from eventplane.envelope import Envelope, data_of, is_json
from eventplane.errors import EnvelopeError, EventPlaneError
from eventplane.reasons import Reason
from eventplane.strict_json import member_spans
from lambdas.router.cpu_limit import CpuLimitError, cpu_limit

EVENT_SECONDS: Final = 0.5
"""Most computing time for one payload, seconds. Ours: 97 KB of numbers, 33,000, take a third of it."""

MESSAGE_SECONDS: Final = 5.0
"""Most computing time for the payloads of one queue message, seconds. Ours: a batch of ten messages with one
that is made to be slow still fits the function's timeout."""

URGENT_MESSAGE_SECONDS: Final = 1.0
"""The same in an urgent queue. Ours: a message there holds a few events, and its function ends sooner."""

_QUOTED: Final = 200
"""Most characters of a path, and of a message, in a refusal's detail: both may quote the payload."""

Check = Callable[[Envelope], Refusal | None]
"""Why an event is refused, or None."""


class SlowPayloadsError(EventPlaneError):
    """The payloads of one queue message take longer than `seconds` to check: somebody has to look at it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the payloads of one message take longer than {seconds:g} s to check; "
            "find the slow schema or the sender, then redrive the message"
        )


class PayloadCheck:
    """Checks the payloads of the event types that `contract` has checked; the schemas are compiled once, for
    the first of their events. `cpu_time` gives the seconds computed."""

    def __init__(
        self, contract: Contract, cpu_time: Callable[[], float], message_s: float = MESSAGE_SECONDS
    ) -> None:
        self._cpu_time = cpu_time
        self._message_s = message_s
        types = [each for each in contract.event_types.values() if each.schema_check is not SchemaCheck.NONE]
        self._types = {each.name: each for each in types}
        self._contract = contract
        self._validators: dict[str, Any] = {}

    def of_message(self) -> Check:
        """The check of one queue message's events, which share a bound on computing time.

        The check raises `SlowPayloadsError`.
        """
        spent = 0.0

        def check(event: Envelope) -> Refusal | None:
            nonlocal spent
            if event.type not in self._types:
                return None
            if spent >= self._message_s:
                raise SlowPayloadsError(self._message_s)
            before = self._cpu_time()
            try:
                return self._refusal(event, self._types[event.type])
            finally:
                spent += self._cpu_time() - before

        return check

    def _refusal(self, event: Envelope, event_type: EventType) -> Refusal | None:
        if self._is_empty_deletion(event):
            return None
        named = event.attributes.get("dataschema")
        id = next(iter(event_type.schemas)) if named is None else str(named)
        if id not in event_type.schemas:
            if event_type.schema_check is SchemaCheck.KNOWN:
                return None
            known = ", ".join(event_type.schemas)
            return Refusal(Reason.UNKNOWN_DATASCHEMA, f"{_short(id)} is none of the contract's: {known}")
        if not self._validators:
            # At the first event that needs it: a router that sees alarms only never loads the library.
            self._validators = _validators(self._contract)
        try:
            with cpu_limit(EVENT_SECONDS):
                problem = _problem(event, self._validators[id])
        except CpuLimitError as error:
            problem = str(error)
        return Refusal(Reason.PAYLOAD_INVALID, f"{problem} (schema {id})") if problem else None

    def _is_empty_deletion(self, event: Envelope) -> bool:
        """Whether `event` removes a state, and so has no payload; what is wrong with it the downlink says."""
        if self._contract.downlink(event.type) is not Downlink.STATE or "statedelete" not in event.attributes:
            return False
        return not {"data", "data_base64"} & {name for name, _, _ in member_spans(event.json)}


def _validators(contract: Contract) -> dict[str, Any]:
    """A validator for each schema by `$id`."""
    # A fifth of a second, which no alarm waits for.
    from jsonschema import Draft202012Validator
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    schemas = {id: schema for each in contract.event_types.values() for id, schema in each.schemas.items()}
    # Without a registry of its own the library would fetch what a `$ref` names from the network.
    registry = Registry().with_resources(
        (id, DRAFT202012.create_resource(schema)) for id, schema in schemas.items()
    )
    return {id: Draft202012Validator(schema, registry=registry) for id, schema in schemas.items()}


def _problem(event: Envelope, validator: Any) -> str | None:
    """What is wrong with the payload, where, by the first of its faults."""
    try:
        data, content_type = data_of(event)
        if content_type is not None and not is_json(content_type):
            return f"data of {_short(content_type)} is not JSON, which the schema speaks of"
        if not data:
            return "there is no data"
        value = strict_json.loads(strict_json.decode_text(data))
        error = next(validator.iter_errors(value), None)
    except EnvelopeError as refused:
        return f"the data is not JSON: {refused.detail}"
    except RecursionError:
        return "it is nested too deeply for its schema"
    except ArithmeticError:
        return "it has a number that is too large to check"
    return None if error is None else f"{_short(error.json_path)}: {_short(error.message)}"


def _short(text: str) -> str:
    """Both ends of a long text: a message begins with the value and ends with what is wrong with it."""
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED // 2]} ... {text[-_QUOTED // 2 :]}"
