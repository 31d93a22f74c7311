"""The AWS that moto plays, and the plane's own contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from eventplane.contract import Contract
from lambdas.common.metrics import metrics
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.sqs import SqsSender
from lambdas.router.dispatch import Dispatch
from lambdas.router.engine import build_engine
from lambdas.router.service import RouterService
from tests.plane import plane_contract
from tests.unit.lambdas.support import NOW_MS, Cloud, Run, ledger_of, with_packs


@pytest.fixture(autouse=True)
def own_metrics() -> Iterator[None]:
    """Forget what a test counted: at 100 values of a metric the next test's invocation would write them."""
    yield
    metrics.clear_metrics()


@pytest.fixture(scope="session")
def contract() -> Contract:
    """The plane's own contract, but for its packed inboxes: tests read one event a message."""
    return with_packs(plane_contract(), 1)


@pytest.fixture
def cloud(contract: Contract, aws: None) -> Cloud:
    cloud = Cloud(boto3.client("sqs"), boto3.client("s3"), boto3.client("dynamodb"))
    cloud.create(contract)
    return cloud


@pytest.fixture
def run(contract: Contract, cloud: Cloud) -> Run:
    """Processes messages of the ingest queue, or of the channel `source`, each time in a new process."""

    def run(
        *messages: QueueMessage,
        source: str = "device.outbox",
        plane: Contract | None = None,
        sqs: Any = None,
        ledger_sqs: Any = None,
        s3: Any = None,
        remaining_ms: Callable[[], int] = lambda: 30_000,
        invocation_id: str = "invocation-1",
    ) -> frozenset[str]:
        engine = build_engine(contract if plane is None else plane, source, cloud.queues)
        service = RouterService(
            engine=lambda: engine,
            dispatch=Dispatch(SqsSender(sqs or cloud.sqs), cloud.queues),
            ledger=ledger_of(cloud, sqs=ledger_sqs, s3=s3),
            clock=lambda: NOW_MS,
        )
        return service.process(messages, Invocation(invocation_id, remaining_ms))

    return run
