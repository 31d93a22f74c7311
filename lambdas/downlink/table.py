"""The table of what devices shall have: items one by one, a device's by page, what is due by share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.downlink import table as requests
from eventplane.downlink.desired import Desired

_CONFLICT: Final = "ConditionalCheckFailedException"


@dataclass(frozen=True, slots=True)
class Page:
    """Primary keys (thing, sort key), and from where to read on; None at the end."""

    keys: tuple[tuple[str, str], ...]
    position: dict[str, Any] | None


class DesiredTable:
    """Reads and writes through a boto3 DynamoDB client. What AWS refuses is raised as botocore raises it."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name

    def read(self, thing: str, sk: str) -> Desired | None:
        """One item, as it is after all writes that were acknowledged."""
        item = self._client.get_item(**requests.read_request(self._name, thing, sk)).get("Item")
        return requests.from_item(item) if item else None

    def write(self, item: Desired) -> Desired | None:
        """Write the successor of what was read; what is stored now, or None when another was faster."""
        if not self._done("put_item", requests.write_request(self._name, item)):
            return None
        return replace(item, revision=item.revision + 1)

    def remove(self, item: Desired) -> bool:
        """Remove what was read; False when another was faster."""
        return self._done("delete_item", requests.remove_request(self._name, item))

    def device_page(self, thing: str, limit: int, after: str | None) -> Page:
        """All items of a device, from behind the sort key `after`."""
        request = requests.page_request(self._name, thing, limit, after)
        request["ProjectionExpression"] = f"#k, {requests.SORT_KEY}"
        return self._page(request)

    def pending_page(self, thing: str, now_ms: int, limit: int, position: dict[str, Any] | None) -> Page:
        """The items of a device that wait for something, the longest first."""
        return self._page(requests.pending_request(self._name, thing, now_ms, limit), position)

    def due_page(self, bucket: int, now_ms: int, limit: int, position: dict[str, Any] | None) -> Page:
        """What is due in a share of the devices. The index lags: look at the item before believing it."""
        return self._page(requests.due_request(self._name, bucket, now_ms, limit), position)

    def _page(self, request: dict[str, Any], position: dict[str, Any] | None = None) -> Page:
        if position is not None:
            request["ExclusiveStartKey"] = position
        answer = self._client.query(**request)
        keys = ((each[requests.PARTITION_KEY]["S"], each[requests.SORT_KEY]["S"]) for each in answer["Items"])
        return Page(tuple(keys), answer.get("LastEvaluatedKey"))

    def _done(self, method: str, request: dict[str, Any]) -> bool:
        try:
            getattr(self._client, method)(**request)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == _CONFLICT:
                return False
            raise
        return True
