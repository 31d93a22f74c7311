"""Each environment is synthesised once for all tests: it takes seconds."""

from __future__ import annotations

from functools import cache

import pytest

from contract import load_contract
from eventplane.contract import Contract
from tests.infrastructure.templates import Templates

_synthesised = cache(lambda name: Templates(name, load_contract()))


@pytest.fixture(scope="session")
def contract() -> Contract:
    return load_contract()


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
