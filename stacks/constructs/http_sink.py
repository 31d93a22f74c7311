"""Functions that post events to HTTPS endpoints, and the keys that their requests are signed with."""

from __future__ import annotations

import string
from typing import Any, Final

from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from eventplane.contract import Contract, Participant, Priority
from eventplane.contract.subscription_table import SUBSCRIPTIONS_TABLE
from eventplane.endpoints import ENDPOINTS_TABLE
from eventplane.function_settings import SubscribersSettings, WebhookSettings
from eventplane.ledger import HANDOVERS
from eventplane.names import SUBSCRIBERS
from eventplane.webhooks import SinkReach, SinkScope
from stacks.constructs.archive import allow_writing
from stacks.constructs.permissions import accept, allow, arn, find_key
from stacks.constructs.python_function import PythonFunction
from stacks.constructs.queues import allow_send, find_channel_dead_letters, find_channel_queue
from stacks.constructs.tables import allow_own_items, allow_table
from stacks.environment import PROJECT, Environment
from stacks.names import pascal
from stacks.plane_stack import charge_to, environment_of

HTTP_SINK: Final = "http_sink"
"""The folder of the code that posts events."""

URGENT_HTTP_SINK: Final = f"{HTTP_SINK}-urgent"
"""The metrics' service of webhooks of urgent inboxes: their figures page."""

_KEY_CHARACTERS: Final = 64
"""Letters and digits of a key: read as base64 they are 48 bytes, within what Standard Webhooks asks for."""

_ANY_SUFFIX: Final = "-??????"
"""Secrets Manager puts six characters of its own choice behind a name."""


def webhook(
    scope: Construct,
    service: Participant,
    inbox: sqs.IQueue,
    outbox: sqs.IQueue,
    archive: s3.IBucket,
    contract: Contract,
) -> None:
    """Make the function that posts what is in the `inbox` of `service` to the endpoint of its webhook.

    Each has a function of its own (a bulkhead). Dead letters go out through `outbox`, as if the service had
    sent them.
    """
    holder = Construct(scope, f"{pascal(service.name)}Webhook")
    environment = environment_of(holder)
    sink = _HttpSink(holder, service, outbox, archive)
    PythonFunction(
        holder,
        "Webhook",
        name=f"webhook-{service.name}",
        folder=HTTP_SINK,
        entry="webhook",
        contract=contract,
        size=environment.webhook,
        metrics_service=URGENT_HTTP_SINK if service.inbox.priority is Priority.URGENT else None,
        sources=[inbox],
        statements=sink.statements,
        settings=WebhookSettings(
            **sink.settings,
            reach=environment.sink_reach,
            webhook_origin=environment.resource_name(service.name),
            source=service.inbox.address,
            webhook_url=environment.webhook_url(service.name),
        ),
    )
    charge_to(holder, service.name)


def subscribers(scope: Construct, archive: s3.IBucket, contract: Contract) -> None:
    """Make the function that posts to all subscribed endpoints; dead letters go out through its outbox."""
    holder = Construct(scope, "Subscribers")
    environment = environment_of(holder)
    participant = contract.participants[SUBSCRIBERS]
    inbox, outbox = (
        find_channel_queue(holder, each.box.capitalize(), each)
        for each in (participant.inbox, participant.outbox)
    )
    sink = _HttpSink(holder, participant, outbox, archive)
    PythonFunction(
        holder,
        "Subscribers",
        name="subscribers",
        folder=HTTP_SINK,
        entry="subscribers",
        contract=contract,
        size=environment.webhook,
        sources=[inbox],
        statements=[*sink.statements, allow_table(holder, SUBSCRIPTIONS_TABLE, "Scan")],
        settings=SubscribersSettings(
            **sink.settings,
            reach=subscribers_reach(environment, contract),
            webhook_origin=subscribers_origin(environment),
            subscriptions_table=environment.resource_name(SUBSCRIPTIONS_TABLE),
        ),
    )


class _HttpSink:
    """The `statements` and `settings` that all functions that post have in common."""

    def __init__(
        self, scope: Construct, participant: Participant, outbox: sqs.IQueue, archive: s3.IBucket
    ) -> None:
        environment = environment_of(scope)
        last_resort = find_channel_dead_letters(scope, "LastResort", participant.inbox)
        secret = webhook_secret_name(environment, participant.name)
        self.statements = [
            allow_send(outbox, last_resort),
            allow_read_secret(scope, secret),
            *allow_writing(scope, archive, [HANDOVERS]),
            allow_own_items(
                scope, ENDPOINTS_TABLE, ("GetItem", "PutItem", "DeleteItem"), f"{participant.name}/*"
            ),
        ]
        self.settings: dict[str, Any] = {
            "webhook_secret": secret,
            "outbox_queue": outbox.queue_url,
            "dead_letter_queue": last_resort.queue_url,
            "concurrency": environment.webhook.max_concurrency,
            "archive_bucket": archive.bucket_name,
            "endpoints_table": environment.resource_name(ENDPOINTS_TABLE),
        }


def subscribers_origin(environment: Environment) -> str:
    """Return the name under which subscribed endpoints know the plane."""
    return f"{PROJECT}-{environment.name}"


def subscribers_reach(environment: Environment, contract: Contract) -> SinkReach:
    """Return where subscribed endpoints may be: nowhere without the participant that posts to them."""
    participant = contract.participants.get(SUBSCRIBERS)
    if participant is None or participant.retired:
        return SinkReach(SinkScope.NOWHERE)
    return environment.sink_reach


def webhook_secret(scope: Construct, id: str, participant: str) -> str:
    """Make a key for the webhook of `participant`, seen by no template, and return the secret's name."""
    environment = environment_of(scope)
    name = webhook_secret_name(environment, participant)
    secret = secretsmanager.Secret(
        Construct(scope, id),
        "Secret",
        secret_name=name,
        encryption_key=find_key(scope),
        description=f"Signs what is posted to {participant} (docs/how-to/webhooks.md)",
        generate_secret_string=secretsmanager.SecretStringGenerator(
            # Not `exclude_punctuation`, which the emulator does not know.
            password_length=_KEY_CHARACTERS,
            exclude_characters=string.punctuation,
        ),
        removal_policy=environment.removal_policy,
    )
    accept(secret, "SMG4", "The receiver has the same key: rotate it with them (docs/how-to/webhooks.md).")
    return name


def webhook_secret_name(environment: Environment, participant: str) -> str:
    """Return what the secret of a webhook is called."""
    return environment.resource_name(f"{participant}-webhook")


def allow_read_secret(scope: Construct, name: str, *others: str) -> iam.PolicyStatement:
    """Return a statement for a role that may read the secret called `name`, or do `others` with it."""
    secret = arn(scope, "secretsmanager", f"secret:{name}{_ANY_SUFFIX}")
    return allow([f"secretsmanager:{each}" for each in ("GetSecretValue", *others)], [secret])
