"""A role for one AWS service, with inline permissions only."""

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
    """A role that only `service` (`lambda`, `iot`, ...) may take, with exactly `statements`.

    They stand in the role itself, so that whatever uses the role never runs before it may.
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
