"""Roles without managed policies, narrow statements, and cdk-nag's findings on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from aws_cdk import Acknowledgment, Stack, Token, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct, IConstruct

from stacks.plane_stack import environment_of

_ENCRYPTED: Final = ("sqs:", "s3:", "dynamodb:", "secretsmanager:")

_KEY: Final = "CustomerKey"

PLAIN_HTTP: Final = "The emulator speaks plain HTTP on this machine; no other environment accepts it."

_ANY_SUFFIX: Final = "-??????"
"""Secrets Manager puts six characters of its own choice behind a name."""


def arn(scope: Construct, service: str, resource: str) -> str:
    """Return the ARN of a `resource` (`thing/*`) in the account and region of `scope`."""
    return Stack.of(scope).format_arn(service=service, resource=resource)


def allow(actions: Sequence[str], resources: Sequence[str]) -> iam.PolicyStatement:
    """Return a statement that allows `actions` on `resources`."""
    return iam.PolicyStatement(actions=list(actions), resources=list(resources))


def service_role(
    scope: Construct,
    id: str,
    *,
    service: str,
    name: str | None = None,
    statements: Sequence[iam.PolicyStatement] = (),
    trust_conditions: Mapping[str, Mapping[str, str]] | None = None,
) -> iam.Role:
    """Return a role that only `service` (`lambda`, `iot`, ...) may take, with `statements`.

    It has a `name` where another stack has to know it; else CloudFormation makes one up.

    They are inline in the role, so that they are in force before the role is used. What the CDK grants by
    itself, to send traces, is in a separate policy.
    """
    return iam.Role(
        scope,
        id,
        role_name=name,
        assumed_by=iam.ServicePrincipal(f"{service}.amazonaws.com", conditions=trust_conditions),
        inline_policies={"permissions": iam.PolicyDocument(statements=list(statements))}
        if statements
        else None,
    )


def find_key(scope: Construct) -> kms.IKey | None:
    """Return the customer's own KMS key, to encrypt something in `scope`; None where there is none."""
    key = environment_of(scope).customer_key
    known = Stack.of(scope).node.try_find_child(_KEY)
    if key is None or known:
        return cast("kms.IKey | None", known)
    return kms.Key.from_key_arn(Stack.of(scope), _KEY, key)


def needs_key(statements: Sequence[iam.PolicyStatement]) -> bool:
    """Return whether `statements` lead to what the customer's key encrypts."""
    return any(action.startswith(_ENCRYPTED) for each in statements for action in each.actions)


def allow_read_secret(scope: Construct, name: str, *others: str) -> iam.PolicyStatement:
    """Return a statement for a role that may read the secret called `name`, or do `others` with it."""
    secret = arn(scope, "secretsmanager", f"secret:{name}{_ANY_SUFFIX}")
    return allow([f"secretsmanager:{each}" for each in ("GetSecretValue", *others)], [secret])


def allow_key(scope: Construct) -> list[iam.PolicyStatement]:
    """Return what a role needs besides, to write and read what is encrypted with the customer's key."""
    key = environment_of(scope).customer_key
    return [] if key is None else [allow(["kms:Decrypt", "kms:GenerateDataKey"], [key])]


def accept(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept that `construct`, or something in it, breaks the AwsSolutions `rule` (`S1`, `IAM5[...]`).

    An ARN in `rule` has `<AWS::Region>` and `<AWS::AccountId>`; where the stack is bound to others, the
    finding has those.
    """
    stack = Stack.of(construct)
    bound = rule
    for placeholder, value in (("<AWS::Region>", stack.region), ("<AWS::AccountId>", stack.account)):
        if not Token.is_unresolved(value):
            bound = bound.replace(placeholder, value)
    for each in {rule, bound}:
        Validations.of(construct).acknowledge(
            Acknowledgment(id=f"AwsSolutions::AwsSolutions-{each}", reason=reason)
        )


def accept_wildcard(construct: IConstruct, service: str, resource: str, reason: str) -> None:
    """Accept that something in `construct` may act on every `resource` (`thing/*`) of `service`."""
    where = f"arn:<AWS::Partition>:{service}:<AWS::Region>:<AWS::AccountId>:{resource}"
    accept(construct, f"IAM5[Resource::{where}]", reason)
