"""Fixtures of the demo's tests."""

from __future__ import annotations

import pytest

from eventplane.contract import Contract
from tests.plane import plane_contract


@pytest.fixture(scope="session")
def contract() -> Contract:
    """The plane's own contract."""
    return plane_contract()
