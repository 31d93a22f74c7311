"""The command line: its nouns, the options that all commands share, errors in one line, completion.

A noun's module is imported when the noun is used. It has `arguments(parser)`, which adds verbs and options
and sets `run`, a function from the parsed options to the exit status.
"""

from __future__ import annotations

import argparse
import errno
import os
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, NoReturn

from eventplane import __version__
from eventplane.contract import ContractError
from eventplane.errors import EventPlaneError
from parts import commands

_CORE: Final[dict[str, tuple[str, str]]] = {
    "audit": ("operations.audit_command", "show what the audits of the archive found"),
    "certificate": (
        "operations.certificate_command",
        "sign the account of an event; verify a signed one offline",
    ),
    "completion": ("operations.completion", "print the completion script of a shell"),
    "conformance": (
        "operations.conformance.command",
        "check a forwarder, or a program in any language, by the receipt protocol",
    ),
    "contract": (
        "operations.contract_command",
        "check, compile, compare, explain, draw, simulate or publish the contract",
    ),
    "dead-letters": (
        "operations.dead_letters_command",
        "list, show or redrive undeliverable messages",
    ),
    "desired": (
        "operations.desired_command",
        "show or reset the desired state of devices, and what they have stored",
    ),
    "init": ("operations.init_command", "start a project: a contract, two services and their test"),
    "inbox": ("operations.inbox_command", "show the events in a participant's inbox"),
    "interest": (
        "operations.interest_command",
        "show, publish or withdraw the filters of the events that devices send up",
    ),
    "new": ("operations.new_command", "start a contract; add a participant or an event type"),
    "restore": ("operations.restore_command", "restore lost items of a table, as they were at a given time"),
    "send": ("operations.send_command", "send an event as one of the participants"),
    "subscriptions": (
        "operations.subscriptions_command",
        "show and change the routes that participants added; show past ones",
    ),
    "trace": ("operations.trace_command", "show every step of an event, and what is missing"),
}

NOUNS: Final = dict(sorted([*_CORE.items(), *commands().items()]))
"""The module of each noun, and what it is for."""

_INSTALLED_WITH: Final = {
    **dict.fromkeys(("boto3", "botocore"), "eventplane[aws]"),
    "cryptography": "cryptography",
    **dict.fromkeys(("yaml", "jsonschema", "referencing", "jinja2"), "eventplane[contract]"),
    "eventplane_client": "eventplane-client[aws]",
    **dict.fromkeys(("edge", "eventplane_edge"), "eventplane[simulate]"),
}
"""What brings a package that a command may lack."""

_ENVIRONMENT: Final = "EVENTPLANE_ENV"
_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

_NETWORK: Final = (ConnectionError, TimeoutError, socket.gaierror, ssl.SSLError)
_UNREACHABLE: Final = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL)
_CHECK_NETWORK: Final = "check the network, and repeat the command"
_CHECK_FILES: Final = "see that the disk has room and that this folder still exists, and repeat the command"

_FAILED: Final = 1
WRONG_WORDS: Final = 2
"""The exit status for words that are wrong; of a command whose 1 is a result, for every failure."""


class Parser(argparse.ArgumentParser):
    """A parser of the tree. Each takes the shared options, so that they may stand before or after a noun."""

    def __init__(self, *, module: str = "", **settings: Any) -> None:
        super().__init__(**settings)
        self._module = module
        self._is_complete = not module
        # What is not given has no default here: it would replace what was given before the noun.
        shared = self.add_argument_group("options of every command", argument_default=argparse.SUPPRESS)
        shared.add_argument(
            "--env", metavar="NAME", help=f"the environment; default: {_ENVIRONMENT}, otherwise dev"
        )
        shared.add_argument("--region", metavar="NAME", help="of AWS; default: AWS_REGION, or the profile's")
        shared.add_argument("--profile", metavar="NAME", help="of AWS credentials; default: AWS_PROFILE")
        shared.add_argument("--endpoint-url", metavar="URL", help="of AWS; default: AWS_ENDPOINT_URL")
        shared.add_argument("--json", action="store_true", help="print JSON")

    def complete(self) -> None:
        """Add what the noun's module declares."""
        if not self._is_complete:
            self._is_complete = True
            import_module(self._module).arguments(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        self.complete()
        found, unknown = super().parse_known_args(args, namespace)
        # The innermost parser is the one that can explain its options.
        if unknown and self._subparsers is None:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """End with one line instead of the whole usage."""
        self.exit(WRONG_WORDS, f"{self.prog}: {' '.join(message.split())}; see {self.prog} --help\n")


def main(arguments: Sequence[str]) -> int:
    """Run a command line; return its exit status. Ends the process for a wrong one, and for `--help`."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by what started this process
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115
    try:
        options = tree().parse_args(arguments)
    except ModuleNotFoundError as error:
        return _missing(error)
    options.env = getattr(options, "env", None) or environment()
    options.json = getattr(options, "json", False)
    with aws_settings(options):
        return run(lambda: int(options.run(options)), getattr(options, "failed", _FAILED))


def environment() -> str:
    """Return the environment of commands in this shell that name none."""
    return os.environ.get(_ENVIRONMENT) or "dev"


def tree() -> Parser:
    """Return the parser of the whole command line; nouns declare their verbs when they are used."""
    parser = Parser(
        prog="eventplane",
        description="Operate an event plane.",
        epilog="Exit status: 0 done, 1 could not be done (or not all, or nothing found), 2 wrong usage.",
    )
    parser.add_argument("--version", action="version", version=f"eventplane {__version__}")
    nouns = parser.add_subparsers(required=True, metavar="NOUN")
    for name, (module, purpose) in NOUNS.items():
        nouns.add_parser(name, help=purpose, module=module)
    return parser


@contextmanager
def aws_settings(options: argparse.Namespace) -> Iterator[None]:
    """Set the region, profile and endpoint of `options` for every AWS client of this process.

    boto3 does not read AWS_REGION, which AWS's own tools and its other SDKs do; here it counts.
    """
    region = getattr(options, "region", None) or os.environ.get("AWS_REGION")
    profile: str | None = getattr(options, "profile", None)
    chosen: dict[str, str | None] = {
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_PROFILE": profile,
        "AWS_ENDPOINT_URL": getattr(options, "endpoint_url", None),
    }
    changes = {name: value for name, value in chosen.items() if value}
    removed = _KEYS if profile else ()  # keys in the environment would win over the profile
    before = {name: os.environ.get(name) for name in (*changes, *removed)}
    try:
        _set_environment({**changes, **dict.fromkeys(removed)})
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def run(command: Callable[[], int], failed: int = _FAILED) -> int:
    """Return the exit status of `command`; `failed` after an error, which is one line with its remedy."""
    from operations.command import ChoiceError, say

    try:
        return command()
    except ModuleNotFoundError as error:
        _missing(error)
    except ChoiceError as error:
        say(str(error))
        return WRONG_WORDS
    except ContractError as error:
        say(error.line)
    except EventPlaneError as error:
        say(str(error))
    except BrokenPipeError:
        sys.stderr.close()  # whoever read the output has seen enough
    except OSError as error:
        if error.filename is None:
            is_network = isinstance(error, _NETWORK) or error.errno in _UNREACHABLE
            say(f"{error.strerror or error}; {_CHECK_NETWORK if is_network else _CHECK_FILES}")
        else:
            say(f"{error.filename}: {error.strerror}; name another file or folder")
    except _sdk_errors() as error:
        from operations.cloud import explained

        say(str(explained(error)))
    except KeyboardInterrupt:
        say("stopped; nothing is lost, and the command can be repeated")
    return failed


def _sdk_errors() -> tuple[type[Exception], ...]:
    """The errors of the AWS SDK, where a command has loaded it: not every command needs it."""
    sdk = sys.modules.get("botocore.exceptions")
    return (sdk.ClientError, sdk.BotoCoreError) if sdk else ()


def _missing(error: ModuleNotFoundError) -> int:
    name = (error.name or "").partition(".")[0]
    wanted = _INSTALLED_WITH.get(name, "eventplane")
    sys.stderr.write(f"the Python package {name} is missing; install it: pip install '{wanted}'\n")
    return _FAILED
