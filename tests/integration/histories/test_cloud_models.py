"""The simulator's SQS, S3 and DynamoDB do what the emulated cloud does: the same scenarios over both."""

from collections.abc import Callable
from random import Random

import pytest

from lab.cloud import CloudEndpoint
from lab.histories.cloud import CloudModel
from lab.histories.engine import Engine
from lab.histories.wires import CurrentFaults
from tests.dynamodb import create_desired_table
from tests.eventually import eventually
from tests.integration.histories.cloud_scenarios import of_dynamodb, of_s3, of_sqs
from tests.plane import shipped_contract

TABLE = "model-desired"


@pytest.fixture
def model() -> CloudModel:
    engine = Engine()
    return CloudModel(engine, shipped_contract(), CurrentFaults(engine, Random(0)), [])


@pytest.fixture(scope="module")
def table(emulator: CloudEndpoint) -> str:
    create_desired_table(emulator.client("dynamodb"), TABLE)
    return TABLE


def until(is_true: Callable[[], bool]) -> None:
    assert eventually(is_true, every_s=0.05)


@pytest.mark.parametrize("seed", range(40))
def test_queues(emulator: CloudEndpoint, model: CloudModel, seed: int) -> None:
    engine = model.engine
    simulated = of_sqs(seed, model.sqs, lambda _: engine.run(engine.now_s + 1.0))
    assert simulated == of_sqs(seed, emulator.client("sqs"), until)


@pytest.mark.parametrize("seed", range(15))
def test_buckets(emulator: CloudEndpoint, model: CloudModel, seed: int) -> None:
    assert of_s3(seed, model.s3) == of_s3(seed, emulator.client("s3"))


@pytest.mark.parametrize("seed", range(30))
def test_tables(emulator: CloudEndpoint, table: str, model: CloudModel, seed: int) -> None:
    create_desired_table(model.dynamodb, table)
    assert of_dynamodb(seed, model.dynamodb, table) == of_dynamodb(seed, emulator.client("dynamodb"), table)
