"""What unit tests of code that calls AWS share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import botocore.session
import pytest


@pytest.fixture(scope="session", autouse=True)
def _services_are_described_once() -> Iterator[None]:
    """A session of boto3 reads megabytes of JSON for its clients, and nearly each test has its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", cache(botocore.session.create_loader))
        yield


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """AWS as moto plays it, for clients that find credentials, region and endpoint by themselves."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    from moto import mock_aws  # slow to load, and most unit tests need no AWS

    with mock_aws():
        yield
