"""The ids by which AWS knows the calls of a run: what its support, and CloudTrail, ask for."""

from __future__ import annotations

from typing import Any


class Requests:
    """Notes the calls of `session`, a `boto3.Session`; clients made before it are not noticed."""

    def __init__(self, session: Any) -> None:
        self._by_operation: dict[str, str] = {}
        self._is_started = False
        session.events.register("after-call", self._note)

    def start(self) -> dict[str, str]:
        """Return the ids from now on, by operation in the order of the last call of each.

        The first time also those before: by then the plane was found.
        """
        if self._is_started:
            self._by_operation = {}
        self._is_started = True
        return self._by_operation

    def _note(self, parsed: Any, model: Any, **_: Any) -> None:
        id = parsed.get("ResponseMetadata", {}).get("RequestId")
        if id:
            name = f"{model.service_model.service_name}:{model.name}"
            self._by_operation.pop(name, None)
            self._by_operation[name] = str(id)
