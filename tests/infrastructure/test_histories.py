"""The simulated plane has the queues and functions that the stacks deploy."""

from random import Random

from eventplane.resource_names import URGENT_INGEST, queue_name
from lab.histories.cloud import ENVIRONMENT, PLANE, CloudModel
from lab.histories.engine import Engine
from lab.histories.wires import CurrentFaults
from lab.histories.wiring import Wiring
from stacks.names import INGEST_ERRORS, LIFECYCLE, TIMERS, WORK
from tests.fakes.sqs import FakeQueue
from tests.infrastructure.conftest import plane
from tests.plane import shipped_contract

NAMES = {"urgent": URGENT_INGEST, "lifecycle": LIFECYCLE, "timers": TIMERS, "work": WORK}
NOT_SIMULATED = (INGEST_ERRORS, "-replies")


def name_of(queue: FakeQueue) -> str:
    name = queue.name.removeprefix(queue_name(ENVIRONMENT, "")).removesuffix(".fifo")
    stem = name.removesuffix("-dlq")
    return NAMES.get(stem, stem) + name.removeprefix(stem)


def test_the_simulated_queues_are_deployed() -> None:
    engine, deployed = Engine(), plane(PLANE.name)
    cloud = CloudModel(engine, shipped_contract(), CurrentFaults(engine, Random(0)), [])
    Wiring(cloud).start()
    queues = {name_of(each): each for each in cloud.sqs.queues.values()}
    for name, queue in deployed.queues.items():
        if name.removesuffix("-dlq").endswith(NOT_SIMULATED):
            continue
        simulated, attributes = queues[name], queues[name].attributes
        assert simulated.redrive.get("maxReceiveCount") == queue.find("RedrivePolicy", "maxReceiveCount"), (
            name
        )
        for each in ("VisibilityTimeout", "MessageRetentionPeriod", "DeduplicationScope", "FifoQueue"):
            assert attributes.get(each) == (str(found).lower() if (found := queue.find(each)) else None), (
                name,
                each,
            )
    readers = {name_of(cloud.sqs.queues[queue]): each for queue, each in cloud.sqs.readers.items()}
    assert readers.keys() == deployed.mappings.keys() - {*NOT_SIMULATED}
    for name, reader in readers.items():
        mapping, size = deployed.mappings[name], reader.size
        assert size.batch_size == mapping.find("BatchSize"), name
        assert size.batch_window_s == (mapping.find("MaximumBatchingWindowInSeconds") or 0), name
        assert size.max_concurrency == mapping.find("ScalingConfig", "MaximumConcurrency"), name
        function = deployed.function_behind(mapping, "FunctionName")
        assert size.timeout_s == function.find("Timeout"), name
        assert reader.may_recur == (function.find("RecursiveLoop") == "Allow"), name
