"""STS in memory: the account whose clients these are."""

from __future__ import annotations

from typing import Any

from tests.fakes.client import ACCOUNT, FakeClient


class FakeSts(FakeClient):
    """A boto3 client of STS."""

    service = "sts"

    def get_caller_identity(self) -> Any:
        return {
            "Account": ACCOUNT,
            "UserId": "AIDA",
            "Arn": f"arn:aws:sts::{ACCOUNT}:user/tests",
        }
