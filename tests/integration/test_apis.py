"""The Discovery and the Subscriptions API over real HTTP: signatures, policies, documents."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
import requests
import schemathesis
import yaml
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from schemathesis import openapi

from eventplane.envelope import write_event
from eventplane_client import ClientSettings, Mode, connect
from eventplane_client.errors import AlreadySubscribedError, NotSubscribedError
from eventplane_client.signed_http import HttpAnswer, SignedHttp
from lab.cloud import CloudEndpoint
from lab.plane import Plane
from tests.endpoint import EndpointServer, answer, silence
from tests.eventually import eventually
from tests.integration.cloud import api_url, as_user, enter, enter_as, session
from tests.integration.test_webhook import is_genuine

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


SECONDS = 60
DOCUMENT = Path(__file__).parents[2] / "parts" / "subscriptions_api" / "openapi.yaml"
NEWS = "org.eventplane.activity.subscribed-news.v1"
_NUMBERS = count(1)


def subscriptions_url(plane: Plane) -> str:
    return api_url(plane, plane.outputs["SubscriptionsApiId"])


def caller(plane: Plane, participant: str) -> CloudEndpoint:
    """The cloud as somebody with the API's policy of `participant` may enter it."""
    return as_user(plane, f"{participant}-subscriptions", name=f"{participant}-caller")


Call = Callable[..., HttpAnswer]


@pytest.fixture(scope="module")
def carers(plane: Plane) -> Call:
    """Calls a path below `/participants`, as the carers' program."""
    http = SignedHttp(subscriptions_url(plane), session(caller(plane, "carers")))
    return lambda method, path, *given, **headers: http.request(
        method, f"/participants/{path}", *given, **headers
    )


def inbox(plane: Plane, participant: str = "carers") -> str:
    return f"arn:aws:sqs:{plane.cloud.region}:{plane.cloud.account}:eventplane-local-{participant}-inbox"


def wanted(plane: Plane, *types: str) -> dict[str, Any]:
    return {"types": list(types), "protocol": "SQS", "sink": inbox(plane)}


def test_only_who_signs_and_has_the_participants_policy_comes_in(plane: Plane, carers: Call) -> None:
    assert carers("GET", "carers/subscriptions").status == 200
    for path in ("family-app/subscriptions", "family-app/subscriptions/news"):
        for method in ("GET", "PUT", "DELETE"):
            assert carers(method, path).status == 403
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{subscriptions_url(plane)}/participants/carers/subscriptions")  # noqa: S310
    liar = boto3.Session(caller(plane, "carers").access_key_id, "wrong", region_name=plane.cloud.region)
    assert (
        SignedHttp(subscriptions_url(plane), liar).request("GET", "/participants/carers/subscriptions").status
        == 403
    )


def enter_news(plane: Plane) -> None:
    enter(plane, write_event({"id": f"s{next(_NUMBERS)}", "source": "/news", "type": NEWS}))


def test_a_down_endpoint_holds_nothing_up(plane: Plane, carers: Call) -> None:
    origin = "eventplane-local"
    consents = answer(200, webhook_allowed_origin=origin)
    with EndpointServer(consents) as good, EndpointServer(consents, *[silence] * 100) as bad:
        for name, server in (("good", good), ("bad", bad)):
            sink = {"types": [NEWS], "protocol": "HTTP", "sink": server.url()}
            created = carers("PUT", f"carers/subscriptions/{name}", sink)
            assert created.status == 201, created.document
        (key,) = carers("GET", "carers/subscriptions/good/signing-key").document["keys"]
        assert carers("GET", "family-app/subscriptions/good/signing-key").status == 403

        def arrives() -> bool:
            enter_news(plane)
            return len(good.received) > 3

        assert eventually(arrives, SECONDS)
        asked, *events = good.received
        assert asked.method == "OPTIONS"
        for each in events:
            assert each.headers["webhook-request-origin"] == origin
            assert is_genuine([key], each.headers, each.body)
        for name in ("good", "bad"):
            assert carers("DELETE", f"carers/subscriptions/{name}").status == 200
    refused = carers("PUT", "carers/subscriptions/none", {"protocol": "HTTP", "sink": good.url()})
    assert (refused.status, refused.document["problems"][0]["path"]) == (400, "sink")


def test_the_client_needs_no_table_rights(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = caller(plane, "carers")
    user = cloud.client("sts").get_caller_identity()["Arn"].rpartition("/")[2]
    arns = [inbox(plane), inbox(plane).replace("-inbox", "-outbox")]
    allowed = {"Effect": "Allow", "Action": ["sqs:GetQueueUrl", "sqs:GetQueueAttributes"], "Resource": arns}
    plane.cloud.client("iam").put_user_policy(
        UserName=user,
        PolicyName="queues",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [allowed]}),
    )
    enter_as(cloud, monkeypatch)
    given = {"mode": Mode.AT_LEAST_ONCE, "subscriptions": subscriptions_url(plane)}
    with connect(ClientSettings("sqs:local", "carers", **given)) as client:
        client.subscribe({"exact": {"type": NEWS}}, name="by-client")
        client.subscribe({"exact": {"type": NEWS}}, name="by-client")
        with pytest.raises(AlreadySubscribedError):
            client.subscribe({"exact": {"type": "other"}}, name="by-client")
        client.unsubscribe("by-client")
        with pytest.raises(NotSubscribedError):
            client.unsubscribe("by-client")


class Signed(requests.auth.AuthBase):
    """Signs what is about to be sent."""

    def __init__(self, cloud: CloudEndpoint) -> None:
        self._cloud = cloud

    def __call__(self, request: Any) -> Any:
        body = request.body.encode() if isinstance(request.body, str) else request.body
        # What is sent is signed as it is; only the host counts among the headers.
        signed = AWSRequest(request.method, request.url, {}, body)
        SigV4Auth(session(self._cloud).get_credentials(), "execute-api", self._cloud.region).add_auth(signed)
        request.headers.update(dict(signed.headers.items()))
        return request


FUZZED = "carers"

openapi.format("cesql", st.sampled_from(["TRUE", "type LIKE 'org.%'", "EXISTS subject", "LENGTH(id) = 3"]))
openapi.format("participant", st.just(FUZZED))
openapi.format("own-inbox", st.just(f"arn:aws:sqs:us-east-1:000000000000:eventplane-local-{FUZZED}-inbox"))
openapi.format("endpoint", st.just("http://127.0.0.1:9/nobody"))
openapi.format("event-source", st.sampled_from(["/homes/1", "https://example.org/a?b", "urn:x:1"]))
openapi.format("entity-tag", st.just("*"))

document = yaml.safe_load(DOCUMENT.read_text())
# Every request is signed below; that it has to be is the first test.
del document["security"]
# An endpoint has to consent: its tests are above.
inbox_only = document["components"]["schemas"]["ProposedSubscription"]
inbox_only["oneOf"] = inbox_only["oneOf"][:1]
# A condition that does not hold says nothing against the data.
statuses = {"expected-statuses": ["2xx", "404", "409", "412"]}
rejections = {"expected-statuses": ["400", "403", "404", "405", "412", "415"]}
config = schemathesis.Config.from_dict(
    {"checks": {"positive_data_acceptance": statuses, "negative_data_rejection": rejections}}
)
# The emulator answers every OPTIONS itself, as a browser's question.
described = openapi.from_dict(document, config=config).exclude(method="OPTIONS")


@pytest.fixture(scope="module")
def signed(plane: Plane) -> Iterator[Signed]:
    cloud = caller(plane, FUZZED)
    yield Signed(cloud)
    http, path = SignedHttp(subscriptions_url(plane), session(cloud)), f"/participants/{FUZZED}/subscriptions"
    for each in http.request("GET", path).document:
        http.request("DELETE", f"{path}/{each['id']}")


@pytest.mark.source("P18")
@described.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_it_is_what_its_description_says(case: schemathesis.Case, plane: Plane, signed: Signed) -> None:
    if case.method == "PUT" and isinstance(case.body, dict):
        case.body.pop("id", None)  # it is the one of the path, or none
    case.call_and_validate(base_url=subscriptions_url(plane), auth=signed)
