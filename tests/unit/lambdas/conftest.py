"""The plane in memory, by its own contract."""

import ssl
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from eventplane.contract import Contract
from lambdas.common.metrics import metrics
from tests.fakes.aws import FakeAws
from tests.plane import plane_contract
from tests.unit.lambdas.support import Cloud, with_packs


@pytest.fixture(scope="session", autouse=True)
def _certificates_once() -> Iterator[None]:
    """Load the certificates that this machine believes once: that takes longer than a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


@pytest.fixture(autouse=True)
def own_metrics() -> Iterator[None]:
    """Forget what a test counted: at 100 values of a metric the next test's invocation would write them."""
    yield
    metrics.clear_metrics()


@pytest.fixture(autouse=True)
def own_services() -> Iterator[None]:
    """Forget what functions were wired to: the next test has another environment."""
    yield
    for name, module in [*sys.modules.items()]:
        if name.startswith(("lambdas.", "parts.")) and hasattr(
            getattr(module, "service", None), "cache_clear"
        ):
            module.service.cache_clear()


@pytest.fixture(scope="session")
def contract() -> Contract:
    """The plane's own contract, but for its packed inboxes: tests read one event a message."""
    return with_packs(plane_contract(), 1)


@pytest.fixture
def cloud(contract: Contract, fake_aws: FakeAws) -> Cloud:
    return Cloud(fake_aws, contract)
