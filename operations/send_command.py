"""`eventplane send FILE`: an event into the plane, from the outbox of the participant that sends its type."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from contract.explain import Reception, outcomes
from contract.loader import check_payload, load_event
from eventplane import reasons
from eventplane.contract import Contract, Participant
from eventplane.dead_letter import Refusal
from eventplane.envelope import Envelope
from eventplane.guarantee import is_expired
from operations.command import DONE, ChoiceError, add_contract, contract_of, positive, present, shell_line
from operations.explain_command import receivers
from operations.system import now_ms

BROKER: Final = "EVENTPLANE_BROKER"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Send an event as one of the participants, wait until the plane has stored it, and print who "
        "receives it. What the contract refuses is not sent."
    )
    parser.set_defaults(run=_send)
    parser.add_argument(
        "event", type=Path, metavar="FILE", help="one event, in JSON or YAML; - for standard input"
    )
    parser.add_argument(
        "--as",
        dest="sender",
        metavar="NAME",
        help="the participant; default: the only one that sends the type",
    )
    parser.add_argument(
        "--broker",
        type=_broker,
        default=os.environ.get(BROKER) or None,
        metavar="mqtt://HOST:PORT",
        help=f"of the home, for a service on a device ({BROKER}); its own connection ends if it is connected",
    )
    parser.add_argument(
        "--timeout", type=positive, default=30.0, metavar="S", help="seconds; default: %(default)s"
    )
    add_contract(parser)


def _broker(text: str) -> str:
    url = urlsplit(text)
    if url.scheme != "mqtt" or not (url.netloc or url.path):
        raise argparse.ArgumentTypeError(f"{text!r} is no broker; write mqtt://HOST:PORT")
    return text


def _send(options: argparse.Namespace) -> int:
    contract, event = contract_of(options), load_event(options.event)
    sender = _sender(contract, event, options.sender)
    if sender.kind.is_on_device and not options.broker:
        problem = f"{sender.name} runs on a device; name the home's broker with --broker mqtt://HOST:PORT"
        raise ChoiceError(f"{problem} ({BROKER})")
    if sender.kind.is_on_device:
        transport = options.broker
    else:
        # Only here: a home has no AWS.
        from operations.cloud import enter

        enter(options.env)
        transport = f"sqs:{options.env}"
    (outcome,) = outcomes(contract, event, sender.name, check_payload(contract, event))
    _check_accepted(outcome, event)
    _put(sender.name, transport, event, options.timeout)
    document: dict[str, Any] = {"id": event.id, "source": event.source} | outcome.document()
    # What waits on a device is found by its source.
    names = (event.source, event.id) if sender.kind.is_on_device else (event.id,)
    way = shell_line(options, "trace", *names, "--follow")
    lines = [f"{event.type} is stored, sent as {sender.name}", *receivers(outcome), f"its way: {way}"]
    present(options, document, "\n".join(lines))
    return DONE


def _check_accepted(outcome: Reception, event: Envelope) -> None:
    """Raise `RefusedError` for what the contract refuses, and for what has expired: nothing is sent."""
    # Only here: what reads the file and the contract needs no client library.
    from eventplane_client.errors import RefusedError

    refusal = outcome.refused or outcome.not_down
    if is_expired(event, now_ms()):
        refusal = Refusal(reasons.Outcome.EXPIRED, f"its expirytime was {event.attributes['expirytime']}")
    if refusal:
        raise RefusedError(outcome.sender, refusal.reason, refusal.detail)


def _put(participant: str, transport: str, event: Envelope, timeout_s: float) -> None:
    from eventplane_client import ClientSettings, Mode, connect

    # What the client tries again it logs; what came of it is raised.
    logging.basicConfig(level=logging.ERROR)
    settings = ClientSettings(transport, participant, state="memory:", mode=Mode.AT_LEAST_ONCE)
    with connect(settings) as client:
        client.put(event, timeout_s)


def _sender(contract: Contract, event: Envelope, name: str | None) -> Participant:
    """Who sends the event: the participant called `name`, or the only one that may. Raises `ChoiceError`."""
    services = {each.name: each for each in contract.participants.values() if each is not contract.device}
    if name is not None:
        if name not in services:
            raise ChoiceError(f"no service is called {name!r}; name one of: {', '.join(sorted(services))}")
        return services[name]
    found = [
        each for each in services.values() if not each.retired and each.sends and each.may_send(event.type)
    ]
    if not found:
        declare = shlex.join(["eventplane", "new", "event-type", event.type, "--sender", "NAME"])
        nobody = f"no participant declares that it sends {event.type}"
        raise ChoiceError(f"{nobody}; name the sender with --as, or declare it: {declare}")
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise ChoiceError(f"{names} send {event.type}; name the sender with --as")
    return found[0]
