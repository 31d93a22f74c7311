"""docs/scale.md speaks of what is deployed."""

from __future__ import annotations

from benchmarks.scale.parameters import LOCAL, PRODUCTION
from stacks.config import ENVIRONMENTS


def test_the_model_has_the_sizes_that_are_deployed() -> None:
    production, local = ENVIRONMENTS["prod"], ENVIRONMENTS["local"]
    for model, router in ((PRODUCTION, production.router), (LOCAL, local.router)):
        assert (model["max_concurrency"], model["batch_size"]) == (router.max_concurrency, router.batch_size)
    assert PRODUCTION["memory_mib"] == production.router.memory_mib
    assert PRODUCTION["batch_window_s"] == production.router.batch_window_s
    assert PRODUCTION["archive_batch_size"] == production.archive_writer.batch_size
    assert PRODUCTION["archive_window_s"] == production.archive_writer.batch_window_s
    assert PRODUCTION["audit_dpu"] == production.audit.workers
    assert PRODUCTION["compaction_dpu"] == production.compaction.workers
    assert PRODUCTION["contract_refresh_s"] == production.contract_refresh_s
