"""`eventplane subscriptions VERB`: a participant's own routes, and which was in force when."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from eventplane.contract import Route, load_compiled
from eventplane.contract.subscription import subscribed_routes
from eventplane.errors import EventPlaneError
from eventplane.filter_texts import to_document
from eventplane.ledger import LEDGER
from eventplane.resource_names import resource_name
from eventplane_client.signed_http import HttpAnswer, SignedHttp
from operations import text
from operations.archive import Days, Record, add_days, days_of, json_object, say_damaged
from operations.cloud import enter
from operations.command import DONE, FAILED, add_verbs, present, present_rows, say


@dataclass(frozen=True, slots=True)
class InForce:
    """A subscription's route as one version of the contract had it, from the first decision to the last.

    Times in Unix milliseconds; `delivered` counts the deliveries by it.
    """

    route: Route
    contract_version: str
    first_ms: int
    last_ms: int
    delivered: int

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "route": self.route.name,
            "to": self.route.destination,
            "filter": to_document(self.route.filter),
            "contract_version": self.contract_version,
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
            "delivered": self.delivered,
        }


@dataclass(slots=True)
class _Decisions:
    """What was decided by one contract."""

    first_ms: int
    last_ms: int
    delivered: dict[str, int]


def history(days: Days) -> tuple[list[InForce], list[str]]:
    """Return the routes in force on `days`, by time and route, and the versions that the archive lacks."""
    decisions: dict[str, _Decisions] = {}
    for record in days.records(LEDGER, json_object):
        _count(decisions, record)
    found: list[InForce] = []
    missing: list[str] = []
    for version, decided in decisions.items():
        compiled = days.contract(version)
        if compiled is None:
            missing.append(version)
        else:
            found += _routes(version, compiled, decided)
    return sorted(found, key=lambda each: (each.route.name, each.first_ms)), sorted(missing)


def _count(decisions: dict[str, _Decisions], record: Record) -> None:
    at_ms = record["decided_at_ms"]
    decided = decisions.setdefault(record["contract_version"], _Decisions(at_ms, at_ms, {}))
    decided.first_ms, decided.last_ms = min(decided.first_ms, at_ms), max(decided.last_ms, at_ms)
    if record["outcome"] == "delivered" and record["route"]:
        decided.delivered[record["route"]] = decided.delivered.get(record["route"], 0) + 1


def _routes(version: str, compiled: bytes, decided: _Decisions) -> Iterator[InForce]:
    for route in subscribed_routes(load_compiled(compiled, version)):
        delivered = decided.delivered.get(route.name, 0)
        yield InForce(route, version, decided.first_ms, decided.last_ms, delivered)


def filter_text(route: Route) -> str:
    """The filter on one line."""
    return json.dumps(to_document(route.filter), ensure_ascii=False)


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

    environment: str
    message = f"environment {{environment!r}} has no output {_OUTPUT}; deploy it, or name the API with --url"


class BadFileError(EventPlaneError):
    """The file `path` contains no subscription."""

    path: Path
    problem: str
    message = "{path}: {problem}; name a file with one subscription as a JSON object"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verb = add_verbs(parser)
    for name, run, purpose in (
        ("list", _list, "list the subscriptions of a participant"),
        ("show", _show, "show a subscription"),
        ("put", _put, "create or change a subscription"),
        ("delete", _delete, "end a subscription"),
        ("key", _key, "show the key by which the endpoint verifies signatures"),
    ):
        each = verb(name, run, purpose)
        each.add_argument("participant", metavar="PARTICIPANT")
        if name != "list":
            each.add_argument("id", metavar="ID")
        if name == "put":
            each.add_argument("file", type=Path, metavar="FILE", help="the subscription in JSON")
        each.add_argument(
            "--url",
            type=_https,
            default=os.environ.get(URL_VARIABLE),
            help=f"of the Subscriptions API; default: {URL_VARIABLE}, or the stack's",
        )
    past = verb("history", _history, "show which subscription was in force when")
    past.add_argument("--route", metavar="NAME", help="PARTICIPANT-subscribes-ID; default: all")
    add_days(past)


def _https(text: str) -> str:
    # A request is signed with the caller's credentials; only a machine's own network may carry it in clear.
    url = urlsplit(text)
    is_local = url.scheme == "http" and url.hostname in ("localhost", "127.0.0.1", "::1")
    if not (url.hostname and (url.scheme == "https" or is_local)):
        raise argparse.ArgumentTypeError(f"{text!r} is no address of an API; write https://HOST/PATH")
    return text


def _list(options: argparse.Namespace) -> int:
    found = _request(options, "GET").document
    nothing = f"{options.participant} has no subscriptions of its own"
    return present_rows(options, found, ["ID", "PROTOCOL", "SINK", "TAKES"], list(map(_row, found)), nothing)


def _show(options: argparse.Namespace) -> int:
    return _print(options, _request(options, "GET", options.id).document)


def _put(options: argparse.Namespace) -> int:
    try:
        proposed = json.loads(options.file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        problem = error.strerror if isinstance(error, OSError) else f"no JSON: {error}"
        raise BadFileError(options.file, str(problem)) from error
    if not isinstance(proposed, dict):
        raise BadFileError(options.file, "no JSON object")
    return _print(options, _request(options, "PUT", options.id, proposed).document)


def _print(options: argparse.Namespace, subscription: Any) -> int:
    # It is a document of its owner's: people read it as they write it.
    present(options, subscription, json.dumps(subscription, indent=2, ensure_ascii=False))
    return DONE


def _delete(options: argparse.Namespace) -> int:
    _request(options, "DELETE", options.id)
    done = f"{options.id} ends within the time in which routers look again"
    present(options, {"id": options.id, "deleted": True}, done)
    return DONE


def _key(options: argparse.Namespace) -> int:
    keys = _request(options, "GET", f"{options.id}/signing-key").document["keys"]
    present(options, {"keys": keys}, "\n".join(keys))
    return DONE


def _history(options: argparse.Namespace) -> int:
    days = days_of(options)
    found, missing = history(days)
    found = [each for each in found if options.route in (None, each.route.name)]
    head = ["ROUTE", "FIRST DECISION", "LAST DECISION", "DELIVERED", "CONTRACT", "TO", "FILTER"]
    rows = [
        [
            each.route.name,
            text.moment(each.first_ms),
            text.moment(each.last_ms),
            each.delivered,
            each.contract_version,
            each.route.destination,
            filter_text(each.route),
        ]
        for each in found
    ]
    nothing = "no contract that decided anything in these days had such a subscription"
    status = present_rows(options, [each.document() for each in found], head, rows, nothing)
    for version in missing:
        say(f"contract {version} decided something and is not in the archive")
    say_damaged(days)
    return FAILED if missing or days.damaged else status


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
    cloud = enter(environment).client("cloudformation")
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


def _row(found: dict[str, Any]) -> list[object]:
    takes = {name: found[name] for name in ("source", "types", "filters") if found.get(name)}
    return [found["id"], found["protocol"], found["sink"], json.dumps(takes, ensure_ascii=False)]
