"""docs/explanation/scale.md speaks of what is deployed."""

from __future__ import annotations

from benchmarks.cost.deployment import Deployment
from benchmarks.scale.model import LOCAL, PRODUCTION
from stacks.config import ENVIRONMENTS


def test_the_model_has_the_sizes_that_are_deployed() -> None:
    deployed = Deployment("prod")
    by_queue = {each.queue: each for each in deployed.mappings}
    router, writer = by_queue["ingest"], by_queue["tap"]
    assert (PRODUCTION["batch_size"], PRODUCTION["batch_window_s"]) == (router.batch_size, router.window_s)
    assert PRODUCTION["memory_mib"] == deployed.functions[router.function].memory_mib
    assert PRODUCTION["max_concurrency"] == router.max_concurrency
    assert (PRODUCTION["archive_batch_size"], PRODUCTION["archive_window_s"]) == (
        writer.batch_size,
        writer.window_s,
    )
    production, local = deployed.environment, ENVIRONMENTS["local"].device_router
    assert PRODUCTION["audit_dpu"] == production.audit.workers
    assert PRODUCTION["compaction_dpu"] == production.compaction.workers
    assert PRODUCTION["contract_refresh_s"] == production.contract_refresh_s
    assert (LOCAL["max_concurrency"], LOCAL["batch_size"]) == (local.max_concurrency, local.batch_size)
