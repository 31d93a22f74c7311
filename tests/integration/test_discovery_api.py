"""The Discovery API over real HTTP: signatures, policies, and the plane in one document."""

import urllib.error
import urllib.request
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from eventplane_client.signed_http import HttpAnswer, SignedHttp
from lab.cloud import CloudEndpoint
from lab.plane import Plane
from tests.integration.cloud import api_url, as_user, session

MESSAGE = "org.eventplane.home.message.v1"


@pytest.fixture(scope="module")
def reader(plane: Plane) -> CloudEndpoint:
    """The cloud as somebody may enter it who has the reader's policy alone."""
    return as_user(plane, "discovery-reader")


def url(plane: Plane) -> str:
    host = urlsplit(plane.outputs["DiscoveryApiUrl"]).hostname or ""
    return api_url(plane, host.partition(".")[0])


def read(plane: Plane, cloud: CloudEndpoint) -> HttpAnswer:
    """The answer to a request that is signed with the credentials of `cloud`."""
    return SignedHttp(url(plane), session(cloud)).request("GET", "/")


def test_only_who_signs_and_has_the_policy_reads(plane: Plane, reader: CloudEndpoint) -> None:
    assert read(plane, reader).status == 200
    assert read(plane, replace(reader, secret_access_key="wrong")).status == 403
    assert read(plane, as_user(plane, "")).status == 403
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{url(plane)}/")  # noqa: S310 - ours


@pytest.mark.source("P18")
def test_one_document_has_the_whole_plane(plane: Plane, reader: CloudEndpoint) -> None:
    contract, root = plane.contract, read(plane, reader).document
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
