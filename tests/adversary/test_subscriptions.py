"""What a participant and an endpoint on the internet try by the Subscriptions API."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from eventplane.envelope import write_event
from eventplane_client.signed_http import HttpAnswer, SignedHttp
from lab.plane import with_variables
from tests.adversary.conftest import Attempt
from tests.adversary.forgeries import PULSE
from tests.adversary.world import READING, VICTIM, World, new_id
from tests.endpoint import EndpointServer, answer, silence
from tests.integration.cloud import session
from tests.integration.test_apis import caller, subscriptions_url

BY = "family-app"
ORIGIN = "eventplane-local"
CONSENTS = answer(200, webhook_allowed_origin=ORIGIN)
API = "eventplane-local-subscriptions-api"
MOTION = "org.eventplane.activity.motion.v1"


@pytest.fixture(scope="module")
def family(world: World) -> SignedHttp:
    """The Subscriptions API, as the program of the family's app may call it."""
    return SignedHttp(subscriptions_url(world.plane), session(caller(world.plane, BY)))


def put(api: SignedHttp, name: str, sink: str, participant: str = BY, **given: object) -> HttpAnswer:
    document = {"protocol": "HTTP", "sink": sink, **given}
    return api.request("PUT", f"/participants/{participant}/subscriptions/{name}", document)


def delete(api: SignedHttp, name: str) -> None:
    assert api.request("DELETE", f"/participants/{BY}/subscriptions/{name}").status == 200


@contextmanager
def subscribed(api: SignedHttp, name: str, endpoint: EndpointServer) -> Iterator[None]:
    """The family's app has subscribed `endpoint` to everything, until the end of the block."""
    given = put(api, name, endpoint.url(), filters=[{"sql": "TRUE"}])
    assert given.status == 201, given.document
    try:
        yield
    finally:
        delete(api, name)


def ids(endpoint: EndpointServer) -> set[str]:
    """The ids of the events that were posted to an endpoint."""
    return {json.loads(each.body)["id"] for each in endpoint.received if each.method == "POST"}


def test_everything_to_an_endpoint_outside(world: World, attempt: Attempt, family: SignedHttp) -> None:
    """family-app: subscribe an endpoint on the internet to everything"""
    secret = write_event({"id": new_id(), "source": f"/homes/{VICTIM}/health", "type": READING}, PULSE)
    alarms = []
    with EndpointServer(CONSENTS) as endpoint, subscribed(family, "everything", endpoint):

        def is_in_force() -> bool:
            alarms.append(world.calls_for_help())
            return bool({each.id for each in alarms} & ids(endpoint))

        assert world.comes(is_in_force)
        world.home.services["health-service"].put(secret)
        alarm = world.calls_for_help()
        assert world.comes(lambda: alarm.id in ids(endpoint) and "care-analytics" in world.who_got(secret))
        attempt.refused(secret.id not in ids(endpoint), "it got the heart rate of a home")
        listed = world.operator("subscriptions", "list", BY, "--url", subscriptions_url(world.plane)).stdout
        attempt.reported(endpoint.url() in listed, listed)


BOMBS = {
    "text that doubles forty times": "LENGTH(" + "CONCAT(" * 40 + "subject" + ", subject)" * 40 + ") > 3",
    "a pattern with two hundred wildcards": "subject LIKE '" + "%a" * 200 + "b'",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_filter_that_costs_too_much(world: World, attempt: Attempt, family: SignedHttp, bomb: str) -> None:
    """family-app: subscribe with a filter to hold up all routers"""
    with EndpointServer(CONSENTS) as endpoint:
        given = put(family, "bomb", endpoint.url(), filters=[{"sql": BOMBS[bomb]}])
        if given.status == 201:
            delete(family, "bomb")
    attempt.refused(given.status == 400, given.document)
    attempt.reported(bool(given.document.get("problems")), given.document)
    attempt.refused(world.is_heard(world.calls_for_help()), "an alarm was not heard")


SINKS = [
    "https://127.0.0.1/", "https://169.254.169.254/latest", "https://[::1]/", "https://[::ffff:10.0.0.1]/",
    "https://[64:ff9b::a9fe:a9fe]/", "https://[2002:7f00:1::]/", "https://224.0.0.1/", "https://[ff02::1]/",
    "https://example.org:22/", "http://example.org/", "https://localhost/", "https://printer.local/",
]  # fmt: skip


def test_an_address_inside(world: World, attempt: Attempt, family: SignedHttp) -> None:
    """family-app: subscribe addresses that are not on the internet, written in a dozen ways"""
    # As in an account: endpoints have to be on the internet.
    with with_variables(world.cloud, [API], {"EVENTPLANE_SINKS": "internet"}):
        given = {sink: put(family, "inside", sink, types=[MOTION]) for sink in SINKS}
    attempt.refused(
        {each.status for each in given.values()} == {400},
        {sink: each.status for sink, each in given.items() if each.status != 400},
    )
    attempt.reported(all("sink" in json.dumps(each.document) for each in given.values()), given)


def test_an_allowed_rate_of_4300_digits(world: World, attempt: Attempt, family: SignedHttp) -> None:
    """a hostile endpoint: consent to a rate of 4,300 digits"""
    with EndpointServer(
        answer(200, webhook_allowed_origin=ORIGIN, webhook_allowed_rate="9" * 4_300)
    ) as endpoint:
        given = put(family, "rate", endpoint.url(), types=[MOTION])
        if given.status == 201:
            delete(family, "rate")
    # What nobody can reach is no limit.
    attempt.refused(given.status == 201 and "protocolsettings" not in given.document, given.document)
    attempt.untraced("an endpoint may allow any rate")


def test_an_endpoint_that_never_answers(world: World, attempt: Attempt, family: SignedHttp) -> None:
    """a hostile endpoint: consent, and then hold every request open"""
    with EndpointServer(CONSENTS, *[silence] * 1_000) as endpoint:
        with subscribed(family, "silent", endpoint):
            assert world.comes(lambda: bool(world.calls_for_help()) and len(endpoint.received) > 1)
            attempt.refused(world.is_heard(world.calls_for_help()), "an alarm was not heard")
        is_logged = world.comes(lambda: world.logged("family-app-subscribes-silent", "no answer"))
        attempt.reported(is_logged, "not logged")


def test_an_endpoint_that_sends_elsewhere(world: World, attempt: Attempt, family: SignedHttp) -> None:
    """a hostile endpoint: redirect the events to an address inside"""
    with EndpointServer() as inside:
        redirect = answer(307, location=inside.url())
        with (
            EndpointServer(CONSENTS, *[redirect] * 100) as endpoint,
            subscribed(family, "elsewhere", endpoint),
        ):
            assert world.comes(lambda: bool(world.calls_for_help()) and len(endpoint.received) > 1)
        is_logged = world.comes(lambda: world.logged("family-app-subscribes-elsewhere", "307"))
        attempt.reported(is_logged, "not logged")
        attempt.refused(not inside.received, f"{len(inside.received)} requests came to the address inside")


def test_a_subscription_of_another_participant(world: World, attempt: Attempt, family: SignedHttp) -> None:
    """family-app: subscribe in the carers' name, and unsigned"""
    given = put(family, "forged", "http://127.0.0.1:9/", "carers", types=[MOTION])
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{subscriptions_url(world.plane)}/participants/carers/subscriptions")  # noqa: S310
    caught.value.close()
    attempt.refused((given.status, caught.value.code) == (403, 403), given.document)
    attempt.reported("family-app-caller" in json.dumps(given.document), given.document)
