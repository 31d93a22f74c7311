"""Findings of cdk-nag that are accepted: each narrowly, each with its reason, where it arises."""

from __future__ import annotations

from typing import Final

from aws_cdk import Acknowledgment, Stack, Token, Validations
from constructs import IConstruct

PLAIN_HTTP: Final = "The emulator speaks plain HTTP on this machine; no other environment accepts it."


def accept(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept that `construct`, or something in it, breaks the AwsSolutions `rule` (`S1`, `IAM5[...]`)."""
    stack = Stack.of(construct)
    # cdk-nag names what a stack knows by now: where it goes, if the environment says so.
    known = {"<AWS::AccountId>": stack.account, "<AWS::Region>": stack.region}
    resolved = rule
    for token, value in known.items():
        if not Token.is_unresolved(value):
            resolved = resolved.replace(token, value)
    for each in {rule, resolved}:
        Validations.of(construct).acknowledge(
            Acknowledgment(id=f"AwsSolutions::AwsSolutions-{each}", reason=reason)
        )
