"""Each environment is synthesised once for all tests: it takes seconds."""

from __future__ import annotations

from functools import cache

import pytest

from eventplane.contract import Contract
from tests.infrastructure.templates import Templates
from tests.plane import shipped_contract

_synthesised = cache(lambda name: Templates(name, shipped_contract()))


@pytest.fixture(scope="session")
def contract() -> Contract:
    return shipped_contract()


@pytest.fixture(params=["local", "dev", "prod"])
def templates(request: pytest.FixtureRequest) -> Templates:
    """The templates of every environment, one after the other."""
    return _synthesised(request.param)


@pytest.fixture
def dev() -> Templates:
    return _synthesised("dev")


@pytest.fixture
def prod() -> Templates:
    return _synthesised("prod")


@pytest.fixture
def local() -> Templates:
    return _synthesised("local")
