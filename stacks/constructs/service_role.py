"""A role for one AWS service; no role brings a managed policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import aws_iam as iam
from constructs import Construct


def service_role(
    scope: Construct,
    id: str,
    *,
    service: str,
    statements: Sequence[iam.PolicyStatement] = (),
    trust_conditions: Mapping[str, Mapping[str, str]] | None = None,
) -> iam.Role:
    """A role that only `service` (`lambda`, `iot`, ...) may take, with `statements`.

    They stand in the role itself, so that whatever uses the role never runs before it may. What the
    CDK grants by itself, to read a queue, to write a log, to send traces, it puts into a policy beside it.
    """
    return iam.Role(
        scope,
        id,
        assumed_by=iam.ServicePrincipal(f"{service}.amazonaws.com", conditions=trust_conditions),
        inline_policies={"permissions": iam.PolicyDocument(statements=list(statements))}
        if statements
        else None,
    )


def allow(actions: Sequence[str], resources: Sequence[str]) -> iam.PolicyStatement:
    """A statement that allows `actions` on `resources`."""
    return iam.PolicyStatement(actions=list(actions), resources=list(resources))
