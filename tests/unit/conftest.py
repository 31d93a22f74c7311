"""What unit tests of code that calls AWS share."""

import json
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import boto3
import botocore.session
import jsonschema
import pytest

from eventplane.contract import Contract
from tests.fakes.aws import FakeAws
from tests.plane import plane_contract


@pytest.fixture(scope="session", autouse=True)
def _once_in_a_session() -> Iterator[None]:
    """Do once what would take most of the time when each test does it again.

    A session of boto3 reads megabytes of JSON for its clients, and nearly each test has its own. Nearly each
    test reads the plane's contract, and its schemas stay as valid as they were.
    """
    check, valid = jsonschema.Draft202012Validator.check_schema, set[str]()

    def check_once(schema: Any) -> None:
        if (text := json.dumps(schema, sort_keys=True)) not in valid:
            check(schema)
            valid.add(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", cache(botocore.session.create_loader))
        patch.setattr(jsonschema.Draft202012Validator, "check_schema", check_once)
        yield


@pytest.fixture(scope="session")
def contract() -> Contract:
    """The plane's own contract."""
    return plane_contract()


@pytest.fixture
def fake_aws(monkeypatch: pytest.MonkeyPatch) -> FakeAws:
    """AWS in memory, for boto3 and for the functions' clients."""
    from lambdas.common import aws  # slow to load, and most unit tests need no AWS

    fake = FakeAws()
    monkeypatch.setattr(boto3, "client", fake.client)
    monkeypatch.setattr(boto3, "Session", lambda: fake)
    monkeypatch.setattr(aws, "_session", lambda: fake)
    return fake


@pytest.fixture(scope="session")
def _clients_of_moto() -> dict[str, Any]:
    """The boto3 clients that tests with `aws` have made: a client keeps nothing of what it is asked."""
    return {}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, _clients_of_moto: dict[str, Any]) -> Iterator[None]:
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

    make = boto3.client

    def client(*arguments: Any, config: Any = None, **more: Any) -> Any:
        surroundings = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        key = repr((arguments, config and vars(config), more, sorted(surroundings.items())))
        if key not in _clients_of_moto:
            _clients_of_moto[key] = make(*arguments, config=config, **more)
        return _clients_of_moto[key]

    # Only boto3 talks to AWS here: moto need not listen to `requests` at its 1,300 addresses.
    monkeypatch.setattr("moto.core.models.RESPONSES_METHODS", [])
    monkeypatch.setattr(boto3, "client", client)
    with mock_aws():
        yield
