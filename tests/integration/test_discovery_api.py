"""The Discovery API over real HTTP: signatures, policies, and the plane in one document."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from local.cloud import CloudEndpoint
from local.plane import Plane
from local.ports import LOOPBACK
from tests.integration.cloud import as_user

SECONDS = 90
MESSAGE = "org.eventplane.home.message.v1"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: Any


Get = Callable[..., Answer]


def request(cloud: CloudEndpoint | None, url: str, *, method: str = "GET", **headers: str) -> Answer:
    """The answer to a request that is signed with the credentials of `cloud`, or by nobody.

    Names below `localhost` are not resolved everywhere: what tells the API is the header.
    """
    signed = AWSRequest(method, url, {name.replace("_", "-"): value for name, value in headers.items()})
    if cloud is not None:
        keys = Credentials(cloud.access_key_id, cloud.secret_access_key)
        SigV4Auth(keys, "execute-api", cloud.region).add_auth(signed)
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(LOOPBACK, parts.port, timeout=SECONDS)
    try:
        path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        connection.request(method, path, headers={**dict(signed.headers.items()), "Host": parts.netloc})
        response = connection.getresponse()
        text = response.read()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, json.loads(text) if text else None)
    finally:
        connection.close()


@pytest.fixture(scope="module")
def reader(plane: Plane) -> CloudEndpoint:
    """The cloud as somebody may enter it who has the reader's policy alone."""
    return as_user(plane, "discovery-reader")


@pytest.fixture
def get(plane: Plane, reader: CloudEndpoint) -> Get:
    """Asks the API for a path."""
    base = plane.outputs["DiscoveryApiUrl"]
    return lambda path, **asked: request(reader, base + path, **asked)


def test_only_who_signs_and_has_the_policy_reads(plane: Plane, get: Get, reader: CloudEndpoint) -> None:
    url = f"{plane.outputs['DiscoveryApiUrl']}/"
    assert get("/").status == 200
    assert request(None, url).status == 403
    assert request(replace(reader, secret_access_key="wrong"), url).status == 403
    assert request(as_user(plane, ""), url).status == 403


@pytest.mark.source("P18")
def test_one_document_has_the_whole_plane(plane: Plane, get: Get) -> None:
    contract, root = plane.contract, get("/").body
    assert root["name"] == contract.name
    assert root["participants"].keys() == contract.participants.keys()
    routes = {each.name for each in contract.routes}
    # Other tests may have subscribed meanwhile.
    assert routes <= root["routes"].keys()
    assert all("-subscribes-" in each for each in root["routes"].keys() - routes)
    (messages,) = (each["messages"] for each in root["messagegroups"].values())
    assert messages.keys() == set(contract.event_types)
    (schemas,) = (each["schemas"] for each in root["schemagroups"].values())
    (version,) = schemas[MESSAGE]["versions"].values()
    assert version["schema"] == next(iter(contract.event_types[MESSAGE].schemas.values()))
