"""Findings of cdk-nag that are accepted: each narrowly, each with its reason, where it arises."""

from __future__ import annotations

from typing import Final

from aws_cdk import Acknowledgment, Validations
from constructs import IConstruct

PLAIN_HTTP: Final = "The emulator speaks plain HTTP on this machine; no other environment accepts it."


def accept(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept that `construct`, or something in it, breaks the AwsSolutions `rule` (`S1`, `IAM5[...]`)."""
    Validations.of(construct).acknowledge(
        Acknowledgment(id=f"AwsSolutions::AwsSolutions-{rule}", reason=reason)
    )
