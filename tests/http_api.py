"""An API's function as API Gateway calls it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.unit.lambdas.support import LambdaContext

HOST = "abc.execute-api.eu-central-1.amazonaws.com"


@dataclass(frozen=True)
class Answer:
    """What a function answered."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)


Call = Callable[..., Answer]


def send(
    handle: Callable[..., Any],
    method: str,
    path: str,
    *,
    body: str | None = None,
    query: Mapping[str, str] | None = None,
    **headers: str,
) -> Answer:
    """One request in API Gateway's payload format 2.0; `_` in a header's name stands for `-`."""
    event = {
        "version": "2.0",
        "routeKey": f"ANY {path}",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}},
        "requestContext": {
            "http": {"method": method, "path": path},
            "domainName": HOST,
            "stage": "$default",
            "authorizer": {"iam": {"userArn": "arn:aws:iam::000000000000:user/carers"}},
        },
        "body": body,
        "isBase64Encoded": False,
        **({"queryStringParameters": query} if query else {}),
    }
    answer = handle(event, LambdaContext())
    return Answer(answer["statusCode"], answer["headers"], answer["body"])
