"""`python -m eventplane subscriptions`: a participant's own routes, and which was in force when."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.errors import EventPlaneError
from eventplane.resource_names import resource_name
from eventplane_client.signed_http import HttpAnswer, SignedHttp
from operations import text
from operations.cloud import enter
from operations.command import DONE, INCOMPLETE, answer, answer_json, run, say
from operations.options import add_days, add_environment, add_json, days_of, is_folder, say_damaged
from operations.subscription_history import filter_text, history

URL_VARIABLE: Final = "EVENTPLANE_SUBSCRIPTIONS_API"
_OUTPUT: Final = "SubscriptionsApiUrl"


class ApiRefusedError(EventPlaneError):
    """The API did not do what was asked; `status` is HTTP's."""

    def __init__(self, answered: HttpAnswer) -> None:
        found = answered.document if isinstance(answered.document, dict) else {}
        lines = [str(found.get("detail") or found.get("message") or "no reason was given")]
        lines += [
            f"  {each['path']}: {each['message']}; {each['remedy']}" for each in found.get("problems", [])
        ]
        super().__init__(f"HTTP {answered.status}: " + "\n".join(lines))
        self.status = answered.status


class NoApiError(EventPlaneError):
    """The `environment` has no Subscriptions API that can be found."""

    def __init__(self, environment: str) -> None:
        super().__init__(
            f"environment {environment!r} has no output {_OUTPUT}; deploy it, or name the API with --url"
        )
        self.environment = environment


class BadFileError(EventPlaneError):
    """What is in the file `path` is no subscription."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}; write one JSON object")
        self.path = path


def main(arguments: list[str]) -> int:
    """The exit status; see `operations.command`."""
    options = _parser().parse_args(arguments)
    return run(lambda: int(options.command(options)))


def _list(options: argparse.Namespace) -> int:
    found = _request(options, "GET").document
    if options.json:
        answer_json(found)
    elif found:
        answer(text.table(["ID", "PROTOCOL", "SINK", "TAKES"], [_row(each) for each in found]))
    else:
        say(f"{options.participant} has no subscriptions of its own")
    return DONE if found else INCOMPLETE


def _show(options: argparse.Namespace) -> int:
    answer_json(_request(options, "GET", options.id).document)
    return DONE


def _put(options: argparse.Namespace) -> int:
    try:
        proposed = json.loads(options.file.read_bytes())
    except (OSError, ValueError) as error:
        raise BadFileError(options.file, str(error)) from error
    answer_json(_request(options, "PUT", options.id, proposed).document)
    return DONE


def _delete(options: argparse.Namespace) -> int:
    _request(options, "DELETE", options.id)
    say(f"{options.id} ends within the time in which routers look again")
    return DONE


def _key(options: argparse.Namespace) -> int:
    for each in _request(options, "GET", f"{options.id}/signing-key").document["keys"]:
        answer(each)
    return DONE


def _history(options: argparse.Namespace) -> int:
    days = days_of(options, None if is_folder(options.archive) else enter())
    found, missing = history(days)
    found = [each for each in found if options.route in (None, each.route.name)]
    if options.json:
        answer_json([each.document() for each in found])
    elif found:
        head = ["ROUTE", "FIRST DECISION", "LAST DECISION", "DELIVERED", "CONTRACT", "TO", "FILTER"]
        rows = [
            [
                each.route.name,
                text.moment(each.first_ms),
                text.moment(each.last_ms),
                str(each.delivered),
                each.contract_version,
                each.route.destination,
                text.word(filter_text(each.route)),
            ]
            for each in found
        ]
        answer(text.table(head, rows))
    else:
        say("no contract that decided anything in these days had such a subscription")
    for version in missing:
        say(f"contract {version} decided something and is not in the archive")
    say_damaged(days)
    return DONE if found and not missing and not days.damaged else INCOMPLETE


def _request(
    options: argparse.Namespace, method: str, id: str | None = None, proposed: object = None
) -> HttpAnswer:
    """A request that was done. Raises `ApiRefusedError`."""
    http = SignedHttp(options.url or _url(options.env))
    path = f"/participants/{options.participant}/subscriptions" + (f"/{id}" if id else "")
    answered = http.request(method, path, proposed)
    if answered.status >= 300:
        raise ApiRefusedError(answered)
    return answered


def _url(environment: str) -> str:
    cloud = enter().client("cloudformation")
    try:
        stacks = cloud.describe_stacks(StackName=resource_name(environment, "subscriptions"))["Stacks"]
    except ClientError as error:
        # CloudFormation has no code of its own for a stack that is not there.
        if error.response.get("Error", {}).get("Code") == "ValidationError":
            raise NoApiError(environment) from error
        raise
    for output in stacks[0].get("Outputs", []):
        if output["OutputKey"] == _OUTPUT:
            return str(output["OutputValue"])
    raise NoApiError(environment)


def _row(found: dict[str, Any]) -> list[str]:
    takes = {name: found[name] for name in ("source", "types", "filters") if found.get(name)}
    return [
        *(text.word(str(found[name])) for name in ("id", "protocol", "sink")),
        text.word(json.dumps(takes, ensure_ascii=False)),
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m eventplane subscriptions", description=__doc__)
    add_environment(parser)
    parser.add_argument(
        "--url",
        default=os.environ.get(URL_VARIABLE),
        help=f"the API; default: {URL_VARIABLE}, or the stack's",
    )
    add_json(parser)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command, purpose in (
        ("list", _list, "all of a participant"),
        ("show", _show, "one"),
        ("put", _put, "create or change one"),
        ("delete", _delete, "end one"),
        ("key", _key, "what the endpoint checks requests with"),
    ):
        each = commands.add_parser(name, help=purpose)
        each.set_defaults(command=command)
        each.add_argument("participant")
        if name != "list":
            each.add_argument("id")
        if name == "put":
            each.add_argument("file", type=Path, help="a file with the subscription in JSON")
    past = commands.add_parser("history", help="which subscription was in force when")
    past.set_defaults(command=_history)
    past.add_argument("--route", help="PARTICIPANT-subscribes-ID; default: all")
    add_days(past)
    return parser
