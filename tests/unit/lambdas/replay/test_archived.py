"""Planners for contracts of long ago, of which a replay of weeks asks for very many."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventplane.contract import Contract, compile_contract
from lambdas.common.archive import Archive
from lambdas.replay import orders
from lambdas.replay.orders import Planners
from tests.unit.lambdas.support import BUCKET, Cloud


class Reads:
    """An S3 client that notes what was read."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.keys: list[str] = []

    def get_object(self, **where: Any) -> Any:
        self.keys.append(where["Key"])
        return self._client.get_object(**where)


def described(contract: Contract, description: str) -> Contract:
    document = json.loads(contract.canonical)
    document["participants"]["device"]["description"] = description
    return compile_contract(document, description)


def test_only_the_last_ones_are_kept(
    cloud: Cloud, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "MAX_KEPT", 2)
    versions = []
    for number in range(3):
        each = described(contract, str(number))
        Archive(cloud.s3, BUCKET).file_contract(each.version, each.canonical)
        versions.append(each.version)
    s3 = Reads(cloud.s3)
    made = Planners(s3, BUCKET, "device.outbox")
    first, _, last = (made.of(each) for each in versions)
    assert made.of(versions[2]) is last
    assert len(s3.keys) == 3
    assert made.of(versions[0]) is not first
    assert len(s3.keys) == 4
