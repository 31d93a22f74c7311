"""HTTP requests to an API of the plane, signed with the program's AWS credentials (SigV4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import NoCredentialsError, NoRegionError
from botocore.httpsession import URLLib3Session

from eventplane_client.aws import region

_SERVICE: Final = "execute-api"
_TIMEOUT_S: Final = (3, 30)
"""Connecting and answering, seconds: API Gateway itself answers within 30."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer with its JSON `document`, None where the body is none; header names in lower case."""

    status: int
    headers: Mapping[str, str] = field(hash=False)
    document: Any = field(hash=False)


class SignedHttp:
    """Requests to the paths below `url`, in the name of the credentials and region of `session`."""

    def __init__(self, url: str, session: boto3.Session | None = None) -> None:
        self._url = url.rstrip("/")
        self._session = session or boto3.Session(region_name=region())
        self._http = URLLib3Session(timeout=_TIMEOUT_S)

    def request(self, method: str, path: str, document: object = None, **headers: str) -> HttpAnswer:
        """The answer, whatever its status; `_` in a header's name stands for `-`.

        Raises botocore's errors for what cannot be signed or does not answer.
        """
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = b""
        if document is not None:
            data = json.dumps(document, ensure_ascii=False).encode()
            sent["content-type"] = "application/json"
        request = AWSRequest(method, self._url + path, sent, data)
        credentials = self._session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        if self._session.region_name is None:
            raise NoRegionError
        SigV4Auth(credentials, _SERVICE, self._session.region_name).add_auth(request)
        answer = self._http.send(request.prepare())
        return HttpAnswer(
            answer.status_code,
            {name.lower(): value for name, value in answer.headers.items()},
            _json(answer.content),
        )


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
