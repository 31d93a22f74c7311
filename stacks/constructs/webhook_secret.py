"""The key that a webhook's requests are signed with."""

from __future__ import annotations

import string
from typing import Final

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from stacks.constructs.service_role import allow
from stacks.environment import Environment
from stacks.findings import accept

_KEY_CHARACTERS: Final = 64
"""Letters and digits of a key: read as base64 they are 48 bytes, within what Standard Webhooks asks for."""

_ANY_SUFFIX: Final = "-??????"
"""Secrets Manager puts six characters of its own choice behind a name."""


class WebhookSecret(Construct):
    """A key of its own for the webhook of `participant`, made by AWS and seen by no template."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment, participant: str) -> None:
        super().__init__(scope, id)
        self.name = secret_name(environment, participant)
        secret = secretsmanager.Secret(
            self,
            "Secret",
            secret_name=self.name,
            description=f"Signs what is posted to {participant} (docs/webhooks.md)",
            generate_secret_string=secretsmanager.SecretStringGenerator(
                # Not `exclude_punctuation`, which the emulator does not know.
                password_length=_KEY_CHARACTERS,
                exclude_characters=string.punctuation,
            ),
            removal_policy=environment.removal_policy,
        )
        accept(secret, "SMG4", "The receiver has the same key: it is rotated with them (docs/webhooks.md).")


def secret_name(environment: Environment, participant: str) -> str:
    """What the secret of a webhook is called."""
    return environment.resource_name(f"{participant}-webhook")


def allow_read_secret(scope: Construct, *, environment: Environment, participant: str) -> iam.PolicyStatement:
    """A statement for a role that may read the keys of the webhook of `participant`."""
    return allow_read_named_secret(scope, secret_name(environment, participant))


def allow_read_named_secret(scope: Construct, name: str) -> iam.PolicyStatement:
    """A statement for a role that may read the secret called `name`."""
    arn = Stack.of(scope).format_arn(
        service="secretsmanager",
        resource="secret",
        resource_name=name + _ANY_SUFFIX,
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    return allow(["secretsmanager:GetSecretValue"], [arn])
