"""STS and Systems Manager in memory: the account whose clients these are, and its parameters."""

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


class FakeParameters(FakeClient):
    """A boto3 client of Systems Manager; `values` by the names of parameters."""

    service = "ssm"

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, str] = {}

    def get_parameter(self, *, Name: str) -> Any:
        if Name not in self.values:
            raise self.refusal("ParameterNotFound", "", "GetParameter")
        return {"Parameter": {"Name": Name, "Type": "String", "Value": self.values[Name]}}
