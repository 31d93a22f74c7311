"""`eventplane contract map`: the event that a message on a mapped topic becomes, and who receives it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from contract.explain import outcomes
from contract.loader import check_payload, content
from eventplane.contract import Contract
from eventplane.contract.mapping import convert
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError, EventPlaneError
from eventplane.values import timestamp
from eventplane_mqtt.codec import UnsendableError, topic_name
from operations.command import DONE, FAILED, add_contract, contract_of, present
from operations.explain_command import receivers
from operations.system import now


class UnmappedError(EventPlaneError):
    """The message in `file`, on `topic`, becomes no event, because of `problem`."""

    file: Path
    topic: str
    problem: str
    message = "{file} on {topic}: {problem}"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("topic", type=_topic, metavar="TOPIC", help="the MQTT topic of the message")
    parser.add_argument("payload", type=Path, metavar="FILE", help="its payload; - for standard input")
    parser.add_argument("--thing", default="home-1", metavar="NAME", help="the device; default: %(default)s")
    add_contract(parser)


def _topic(text: str) -> str:
    try:
        topic_name(text)
    except UnsendableError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def run(options: argparse.Namespace) -> int:
    """Print the event and its receivers. Raises `UnmappedError` if it becomes none."""
    contract = contract_of(options)
    sender, event = _event(contract, options)
    (outcome,) = outcomes(contract, event, f"{options.thing}/{sender}", check_payload(contract, event))
    document: dict[str, Any] = json.loads(event.json)
    text = json.dumps(document, indent=2, ensure_ascii=False)
    present(options, {"event": document} | outcome.document(), "\n".join([text, *receivers(outcome)]))
    return FAILED if outcome.refused else DONE


def _event(contract: Contract, options: argparse.Namespace) -> tuple[str, Envelope]:
    topic, payload = options.topic, content(options.payload)
    for mapping in contract.mappings:
        levels = mapping.levels(topic)
        if levels is None:
            continue
        if not payload:
            raise UnmappedError(options.payload, topic, "an empty message is no event; give it a payload")
        try:
            said = convert(mapping, topic, levels, payload)
            if said is not None:
                event = said.event(options.thing, timestamp(now()), said.derived_id(1, 0))
                return mapping.participant, parse_event(event)
        except EnvelopeError as error:
            problem = f"it becomes the dead letter {error.reason}: {error.detail}; correct the mapping"
            raise UnmappedError(options.payload, topic, problem) from error
        path = f"{mapping.participant}.mappings.{mapping.name}"
        raise UnmappedError(
            options.payload, topic, f"it is no event by `when` of {path}; correct it if it should be one"
        )
    patterns = ", ".join(each.topic for each in contract.mappings) or "none"
    raise UnmappedError(options.payload, topic, f"no mapping takes it; the contract has: {patterns}")
