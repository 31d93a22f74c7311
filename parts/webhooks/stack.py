"""Functions that post events to HTTPS endpoints, and the keys that their requests are signed with."""

from __future__ import annotations

import string
from collections.abc import Callable
from functools import partial
from typing import Final

from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from eventplane.contract import Contract, Participant, Priority
from eventplane.contract.subscription_table import SUBSCRIPTIONS_TABLE
from eventplane.ledger import HANDOVERS
from eventplane.names import SUBSCRIBERS
from eventplane.sinks import SinkReach, SinkScope
from parts.webhooks.endpoint_state import ENDPOINT, ENDPOINTS_TABLE, EXPIRES
from parts.webhooks.settings import HttpSinkSettings, SubscribersSettings, WebhookSettings
from stacks.application import PlaneStacks
from stacks.constructs.archive import allow_writing
from stacks.constructs.permissions import accept, allow_read_secret, find_key
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queues import allow_send, find_channel_dead_letters, find_channel_queue
from stacks.constructs.tables import allow_own_items, allow_table, durable_table
from stacks.environment import PROJECT, Environment, is_posted
from stacks.names import HTTP_SINK, URGENT_HTTP_SINK, pascal
from stacks.plane_stack import charge_to, environment_of

_KEY_CHARACTERS: Final = 64
"""Letters and digits of a key: read as base64 they are 48 bytes, within what Standard Webhooks asks for."""


def add(plane: PlaneStacks) -> None:
    """Add the keys of all that is posted, the table of endpoints that fail, and the functions of webhooks.

    Subscribed endpoints are posted to by a function beside the Subscriptions API.
    """
    # Losing an item means that each process asks for itself.
    table = durable_table(
        Construct(plane.messaging, "Endpoints"), "Table", ENDPOINTS_TABLE, ENDPOINT.key[0], expires=EXPIRES
    )
    plane.messaging.output("EndpointsTable", table.table_name)
    routing = plane.routing
    for name, service in routing.services.items():
        if is_posted(service):
            secret = _secret(plane.messaging, f"{name}Webhook", service.name)
            plane.messaging.output(f"{name}WebhookSecret", secret)
        if service.inbox.webhook:
            _webhook(routing, service, routing.archive, plane.contract)


def _webhook(scope: Construct, service: Participant, archive: s3.IBucket, contract: Contract) -> None:
    """Make the function that posts what is in the inbox of `service` to the endpoint of its webhook.

    Each has a function of its own (a bulkhead).
    """
    holder = Construct(scope, f"{pascal(service.name)}Webhook")
    environment = environment_of(holder)
    settings = partial(
        WebhookSettings,
        reach=environment.sink_reach,
        webhook_origin=environment.resource_name(service.name),
        source=service.inbox.address,
        webhook_url=environment.webhook_url(service.name),
    )
    _function(holder, "Webhook", f"webhook-{service.name}", service, archive, contract, settings)
    charge_to(holder, service.name)


def subscribers(scope: Construct, archive: s3.IBucket, contract: Contract) -> None:
    """Make the function that posts to all subscribed endpoints."""
    holder = Construct(scope, "Subscribers")
    environment = environment_of(holder)
    settings = partial(
        SubscribersSettings,
        reach=subscribers_reach(environment, contract),
        webhook_origin=subscribers_origin(environment),
        subscriptions_table=environment.resource_name(SUBSCRIPTIONS_TABLE),
    )
    scan = allow_table(holder, SUBSCRIPTIONS_TABLE, "Scan")
    participant = contract.participants[SUBSCRIBERS]
    _function(holder, "Subscribers", SUBSCRIBERS, participant, archive, contract, settings, scan)


def _function(
    holder: Construct,
    id: str,
    name: str,
    participant: Participant,
    archive: s3.IBucket,
    contract: Contract,
    settings: Callable[..., HttpSinkSettings],
    *statements: iam.PolicyStatement,
) -> None:
    """Make a function that posts for `participant`; dead letters go out as if it had sent them."""
    environment = environment_of(holder)
    inbox, outbox = (
        find_channel_queue(holder, each.box.capitalize(), each)
        for each in (participant.inbox, participant.outbox)
    )
    last_resort = find_channel_dead_letters(holder, "LastResort", participant.inbox)
    secret = webhook_secret_name(environment, participant.name)
    is_urgent = participant.inbox.webhook and participant.inbox.priority is Priority.URGENT
    PythonFunction(
        holder,
        id,
        name=name,
        module=f"parts.webhooks.{id.lower()}",
        contract=contract,
        size=environment.webhook,
        metrics_service=URGENT_HTTP_SINK if is_urgent else HTTP_SINK,
        sources=[inbox],
        statements=[
            allow_send(outbox, last_resort),
            allow_read_secret(holder, secret),
            *allow_writing(holder, archive, [HANDOVERS]),
            allow_own_items(
                holder, ENDPOINTS_TABLE, ("GetItem", "PutItem", "DeleteItem"), f"{participant.name}/*"
            ),
            *statements,
        ],
        settings=settings(
            webhook_secret=secret,
            outbox_queue=outbox.queue_url,
            dead_letter_queue=last_resort.queue_url,
            concurrency=environment.webhook.max_concurrency,
            archive_bucket=archive.bucket_name,
            endpoints_table=environment.resource_name(ENDPOINTS_TABLE),
        ),
    )


def subscribers_origin(environment: Environment) -> str:
    """Return the name under which subscribed endpoints know the plane."""
    return f"{PROJECT}-{environment.name}"


def subscribers_reach(environment: Environment, contract: Contract) -> SinkReach:
    """Return where subscribed endpoints may be: nowhere without the participant that posts to them."""
    participant = contract.participants.get(SUBSCRIBERS)
    if participant is None or participant.retired:
        return SinkReach(SinkScope.NOWHERE)
    return environment.sink_reach


def _secret(scope: Construct, id: str, participant: str) -> str:
    """Make a key for the webhook of `participant`, seen by no template, and return the secret's name."""
    environment = environment_of(scope)
    name = webhook_secret_name(environment, participant)
    secret = secretsmanager.Secret(
        Construct(scope, id),
        "Secret",
        secret_name=name,
        encryption_key=find_key(scope),
        description=f"Signs what is posted to {participant} (parts/webhooks/how-to.md)",
        generate_secret_string=secretsmanager.SecretStringGenerator(
            # Not `exclude_punctuation`, which the emulator does not know.
            password_length=_KEY_CHARACTERS,
            exclude_characters=string.punctuation,
        ),
        removal_policy=environment.removal_policy,
    )
    accept(secret, "SMG4", "The receiver has the same key: rotate it with them (parts/webhooks/how-to.md).")
    return name


def webhook_secret_name(environment: Environment, participant: str) -> str:
    """Return what the secret of a webhook is called."""
    return environment.resource_name(f"{participant}-webhook")
