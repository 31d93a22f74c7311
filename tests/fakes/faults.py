"""Clients that fail when a test says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError


class FailingClient:
    """`client`, whose `method` fails with `code`: for all requests, or those on `targets` if they are named.

    `targets` are URLs of queues, or names of tables or buckets, and may be changed; `*` is every method. Of
    these requests those fail that are `refused`. `asked` are all requests that came, by method and target.
    """

    def __init__(
        self,
        client: Any,
        method: str = "*",
        *,
        targets: Collection[str] | None = None,
        refused: Callable[[dict[str, Any]], bool] = lambda _: True,
        code: str = "Throttling",
    ) -> None:
        self.targets = set(targets or ())
        self.asked: list[tuple[str, str]] = []
        self._client = client
        self._refused = refused
        self._method = method
        self._code = code
        self._fails_all = targets is None
        self._is_over = False

    def end(self) -> None:
        """Let all requests succeed from now on."""
        self._is_over = True

    def get_paginator(self, operation: str) -> Any:
        paginator = self._client.get_paginator(operation)

        def paginate(**request: Any) -> Any:
            self._meet(operation, request)
            return paginator.paginate(**request)

        return SimpleNamespace(paginate=paginate)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name in ("exceptions", "meta") or not callable(found):
            return found

        def call(**request: Any) -> Any:
            self._meet(name, request)
            return found(**request)

        return call

    def _meet(self, name: str, request: dict[str, Any]) -> None:
        target = next(
            (str(request[each]) for each in ("QueueUrl", "TableName", "Bucket") if each in request), ""
        )
        self.asked.append((name, target))
        if self._is_over or self._method not in ("*", name):
            return
        if (self._fails_all or target in self.targets) and self._refused(request):
            raise ClientError({"Error": {"Code": self._code, "Message": "no"}}, name)


@dataclass
class HookedClient:
    """`client`, which calls `before` and `after` with each call of `method`; `calls` counts all by method."""

    client: Any
    method: str
    before: Callable[[], object] = int
    after: Callable[[], object] = int
    calls: Counter[str] = field(default_factory=Counter)

    def __getattr__(self, name: str) -> Any:
        def call(**request: Any) -> Any:
            self.calls[name] += 1
            if name == self.method:
                self.before()
            answer = getattr(self.client, name)(**request)
            if name == self.method:
                self.after()
            return answer

        return call


class RefusingSqs:
    """`sqs`, which refuses messages of batches with the code that `refusal` returns of their URL and body."""

    def __init__(self, sqs: Any, refusal: Callable[[str, str], str | None]) -> None:
        self._sqs = sqs
        self._refusal = refusal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sqs, name)

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:
        codes = {each["Id"]: self._refusal(QueueUrl, each["MessageBody"]) for each in Entries}
        taken = [each for each in Entries if codes[each["Id"]] is None]
        answer = self._sqs.send_message_batch(QueueUrl=QueueUrl, Entries=taken) if taken else {}
        refused = [{"Id": id, "Code": code, "SenderFault": False} for id, code in codes.items() if code]
        return {"Successful": answer.get("Successful", []), "Failed": answer.get("Failed", []) + refused}
