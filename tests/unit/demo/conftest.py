"""Fixtures of the demo's tests."""

from __future__ import annotations

import pytest

from contract import load_contract
from eventplane.contract import Contract


@pytest.fixture(scope="session")
def contract() -> Contract:
    """The plane's own contract."""
    return load_contract()
