"""DynamoDB in memory: moto's tables and expressions, without botocore's and moto's HTTP between."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from functools import partial
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.responses import DynamoHandler

from tests.fakes import client
from tests.fakes.client import ACCOUNT, REGION, FakeClient

_PLACEHOLDER = re.compile(r"[#:]\w+")


class _Handler(DynamoHandler):
    """Answers from tables of its own, not from those of a mocked account."""

    def __init__(self) -> None:
        super().__init__()
        self._tables = DynamoDBBackend(REGION, ACCOUNT)

    @property
    def dynamodb_backend(self) -> DynamoDBBackend:
        return self._tables


class FakeDynamoDb(FakeClient):
    """A boto3 client of DynamoDB. All reads are consistent, those of global indexes too."""

    service = "dynamodb"

    def __init__(self) -> None:
        super().__init__()
        self._handler = _Handler()

    def items(self, table: str) -> list[dict[str, Any]]:
        """All items of a table, by their keys."""
        keys = [each["AttributeName"] for each in self.describe_table(TableName=table)["Table"]["KeySchema"]]
        found: list[dict[str, Any]] = self.scan(TableName=table)["Items"]
        return sorted(found, key=lambda item: [*(value for key in keys for value in item[key].values())])

    def peek(self, table: str) -> list[dict[str, Any]]:
        """Return all items of a table, in any order and without a request."""
        found = self._handler.dynamodb_backend.get_table(table)
        return [each.to_json()["Attributes"] for each in found.all_items()]

    def __getattr__(self, operation: str) -> Any:
        if operation.startswith("_") or not hasattr(DynamoHandler, operation):
            raise AttributeError(operation)
        return partial(self._ask, operation)

    def _ask(self, operation: str, **request: Any) -> Any:
        self.check(operation, request)
        given = {*request.get("ExpressionAttributeNames", ()), *request.get("ExpressionAttributeValues", ())}
        texts = (str(text) for name, text in request.items() if name.endswith("Expression"))
        if given != set(_PLACEHOLDER.findall(" ".join(texts))):
            # moto takes some of these, DynamoDB none.
            raise self.refusal("ValidationException", f"not all are used, or given: {given}", operation)
        return client.perform(self, operation, request, partial(self._answer, operation))

    def _answer(self, operation: str, **request: Any) -> Any:
        self._handler.body = deepcopy(request)
        try:
            return getattr(self._handler, operation)().result
        except JsonRESTError as error:
            told = json.loads(error.description)
            code = told.pop("__type").rpartition("#")[2]
            raise self.refusal(code, told.pop("message"), operation, **told) from None
