"""The world that moto plays."""

from __future__ import annotations

import boto3
import pytest

from lambdas.common.metrics import metrics
from tests.unit.lambdas.presence.world import World


@pytest.fixture
def world(aws: None) -> World:
    metrics.clear_metrics()
    return World(boto3.client("dynamodb"), boto3.client("sqs"))
