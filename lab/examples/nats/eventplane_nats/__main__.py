"""`python -m eventplane_nats`: creates, shows and redrives a contract's streams, and relays an outbox."""

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import nats
from nats.js import JetStreamContext

from eventplane.contract import Contract, load_compiled
from eventplane.errors import EventPlaneError
from eventplane_client.aws import aws_client
from eventplane_nats.connection import NatsLink, server_and_name
from eventplane_nats.relay import Relay
from eventplane_nats.rights import OPERATOR, accounts, api_of
from eventplane_nats.streams import ACK_WAIT_S, channels, level, make_stream, redrive, stream_name

_CALL_S = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    try:
        server, environment = server_and_name(options.address)
        if options.command == "relay":
            _relay(options.participant, server, environment)
            return 0
        if options.command == "rights":
            print(accounts(_contract(options), environment), end="")
            return 0
        connection = NatsLink(server, OPERATOR)
        try:
            _run(options, connection, environment)
        finally:
            connection.close()
    except (EventPlaneError, nats.errors.Error, OSError) as error:
        print(str(error) or type(error).__name__, file=sys.stderr)
        return 1
    return 0


def _run(options: argparse.Namespace, connection: NatsLink, environment: str) -> None:
    if options.command == "redrive":
        stream = stream_name(environment, options.channel)
        jetstream = _jetstream(connection, options.channel.partition(".")[0])
        connection.run(redrive(jetstream, stream), _CALL_S)
        return
    for channel in channels(_contract(options)):
        jetstream = _jetstream(connection, channel.participant)
        if options.command == "create":
            action = make_stream(
                jetstream, environment, channel, replicas=options.replicas, ack_wait_s=options.ack_wait_s
            )
            print(connection.run(action, _CALL_S))
        else:
            stream = stream_name(environment, channel.address)
            found = connection.run(level(jetstream, stream), _CALL_S)
            print(
                f"{stream}: {found.messages} messages, {found.in_flight} in flight, {found.given_up} given up"
            )


def _jetstream(connection: NatsLink, participant: str) -> JetStreamContext:
    """JetStream in the account of `participant`, or the only one where the server has no rules."""
    own = connection.nats.jetstream(prefix=api_of(participant))
    try:
        connection.run(own.account_info(), _CALL_S)
    except (nats.errors.NoRespondersError, nats.js.errors.ServiceUnavailableError):
        return connection.jetstream
    return own


def _contract(options: argparse.Namespace) -> Contract:
    return load_compiled(Path(options.contract).read_bytes(), options.contract)


def _relay(participant: str, server: str, environment: str) -> None:
    with Relay(participant, server, environment, aws_client("sqs")) as relay:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda *_: relay.stop())
        relay.run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m eventplane_nats", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, purpose: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=purpose)
        added.add_argument("address", help="nats://HOST:PORT/ENVIRONMENT")
        return added

    create = command("create", "create the streams of a contract, or change them to what it says")
    create.add_argument("contract", help="the compiled contract, a file")
    create.add_argument("--replicas", type=int, default=1, help="servers that keep each event (default: 1)")
    create.add_argument(
        "--ack-wait-s",
        type=float,
        default=ACK_WAIT_S,
        help="seconds after which what nobody acknowledged comes again (default: %(default)s)",
    )
    status = command("status", "show how full the streams of a contract are")
    status.add_argument("contract", help="the compiled contract, a file")
    rights = command("rights", "print who may do what, for the server's configuration")
    rights.add_argument("contract", help="the compiled contract, a file")
    again = command("redrive", "let what a stream has given up come again")
    again.add_argument("channel", help="PARTICIPANT.inbox")
    relay = command("relay", "bring what a service puts over NATS to its outbox queue")
    relay.add_argument("participant", help="the contract's name of the service")
    return parser


if __name__ == "__main__":
    sys.exit(main())
