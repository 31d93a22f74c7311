"""`eventplane conformance HOST`: check a forwarder, or a program with --run, by the receipt protocol."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from eventplane.contract import Contract, ParticipantKind, Priority
from eventplane.topics import receipt_topic
from eventplane_mqtt import Endpoint, Login, PinnedCertificate
from operations.command import DONE, FAILED, ChoiceError, add_contract, contract_of, positive, present
from operations.conformance.kit import Bench
from operations.conformance.rules import OF_FORWARDERS, OF_PROGRAMS, PAGE, Outbox, Requirement, Result, judged
from operations.system import random_bytes

_PORT: Final = 1883
_TLS_PORT: Final = 8883
_SERVICE: Final = "conformance"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Check by the receipt protocol the forwarder at a broker, which gets 51 events and two dead letters; "
        "or with --run a program, for which this command is the forwarder, at a broker without one."
    )
    parser.set_defaults(run=_run)
    parser.add_argument("host", type=_host, metavar="HOST[:PORT]", help="the broker")
    parser.add_argument(
        "--as", dest="service", metavar="NAME", help=f"the service; default: with --run {_SERVICE}, else the "
        "first that sends a type without urgency",
    )  # fmt: skip
    parser.add_argument("--username", metavar="NAME", help="at the broker, of this command")
    parser.add_argument("--password-file", type=Path, metavar="FILE", help="one line, mode 600")
    parser.add_argument(
        "--certificate", type=Path, metavar="FILE", help="of a broker with TLS, the only one trusted"
    )
    parser.add_argument(
        "--timeout",
        type=positive,
        default=60.0,
        metavar="S",
        help="seconds for each step; default: 60",
    )
    add_contract(parser)
    parser.add_argument(
        "--run",
        dest="program",
        nargs=argparse.REMAINDER,
        metavar="PROGRAM",
        help="the program to check, to the end of the line; it gets HOST, PORT and NAME as last arguments",
    )


def _host(text: str) -> tuple[str, int | None]:
    try:
        url = urlsplit(f"mqtt://{text}")
        host, port = url.hostname, url.port
    except ValueError:
        host = port = None
    if not host or url.path or url.username:
        raise argparse.ArgumentTypeError(f"{text!r} is no broker; write HOST or HOST:PORT")
    return host, port


def _run(options: argparse.Namespace) -> int:
    if (options.username is None) is not (options.password_file is None):
        raise ChoiceError("a user has a password; give both --username and --password-file")
    if options.program is not None and not options.program:
        raise ChoiceError("--run names no program; write it with its arguments behind --run")
    results = []
    for each in judged(*(_of_program(options) if options.program else _of_forwarder(options))):
        results.append(each)
        present(options, _document(each), _line(each), is_line=True)
    return FAILED if any(each.problem for each in results) else DONE


def _of_program(options: argparse.Namespace) -> tuple[tuple[Requirement, ...], Callable[[Requirement], None]]:
    def run(rule: Requirement) -> None:
        service = options.service or _SERVICE
        with closing(Bench(options.program, service, _endpoint(options, ()), options.timeout)) as bench:
            rule.check(bench)

    return OF_PROGRAMS, run


def _of_forwarder(
    options: argparse.Namespace,
) -> tuple[tuple[Requirement, ...], Callable[[Requirement], None]]:
    contract = contract_of(options)
    service, type = _sender(contract, options.service)
    examples = next(iter(contract.event_types[type].schemas.values()), {}).get("examples")
    endpoint = _endpoint(options, (receipt_topic(service, "outbox"),))
    run_id = random_bytes(8).hex()

    def run(rule: Requirement) -> None:
        data = examples[0] if examples else {}
        with closing(Outbox(service, type, data, endpoint, options.timeout, run_id)) as outbox:
            rule.check(outbox)

    return OF_FORWARDERS, run


def _sender(contract: Contract, name: str | None) -> tuple[str, str]:
    """Return a service on the device, and a type that it sends and that rings nowhere."""
    for each in contract.of_kind(ParticipantKind.DEVICE_SERVICE):
        if name in (None, each.name) and each.outbox.priority is not Priority.URGENT:
            for type in contract.event_types.values():
                if each.may_send(type.name) and type.priority is not Priority.URGENT:
                    return each.name, type.name
    who = f"{name!r} is no service on the device that sends" if name else "no service on the device sends"
    raise ChoiceError(f"{who} a type without urgency; name the contract of the forwarder with --contract")


def _endpoint(options: argparse.Namespace, subscriptions: tuple[str, ...]) -> Endpoint:
    host, port = options.host
    tls = PinnedCertificate(options.certificate) if options.certificate else None
    login = Login(options.username, options.password_file) if options.username else None
    return Endpoint(
        host,
        port or (_TLS_PORT if tls else _PORT),
        client_id=f"eventplane-conformance-{random_bytes(4).hex()}",
        # The broker may take the user for the client id: a service's session must outlive this command.
        clean_session=login is None,
        keepalive_s=30,
        connect_timeout_s=10.0,
        subscriptions=subscriptions,
        tls=tls,
        login=login,
    )


def _document(result: Result) -> dict[str, object]:
    paragraph, name, _ = result.rule
    return {"paragraph": paragraph, "rule": name, "passed": result.problem is None, "problem": result.problem}


def _line(result: Result) -> str:
    word = "pass" if result.problem is None else "FAIL"
    where = f": {result.problem} ({PAGE}, {result.rule.paragraph})" if result.problem else ""
    return f"{word} {result.rule.paragraph:>3}  {result.rule.name}{where}"
