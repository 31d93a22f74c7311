"""A connection under test, and its reports."""

from __future__ import annotations

from dataclasses import replace
from queue import SimpleQueue
from typing import Any, TypeVar

from eventplane_mqtt import Connection, Endpoint
from eventplane_mqtt.mailbox import Acknowledged, Connected, Disconnected, LinkName, Message, Received
from tests.integration.edge.conftest import SECONDS

Kind = TypeVar("Kind", Connected, Disconnected, Received, Acknowledged)


class Probe:
    """A connection of generation 7 with a lasting session, subscribed to `t`; `changes` of the endpoint."""

    def __init__(self, port: int, **changes: Any) -> None:
        self.reports: SimpleQueue[Message] = SimpleQueue()
        endpoint = Endpoint("127.0.0.1", port, "c", False, 30, 10.0, ("t",))
        self.connection = Connection(replace(endpoint, **changes), LinkName.LOCAL, 7, self.reports.put)

    def next(self, kind: type[Kind]) -> Kind:
        """Return the next report, which must be of this kind."""
        report = self.reports.get(timeout=SECONDS)
        assert isinstance(report, kind), report
        assert (report.link, report.generation) == (LinkName.LOCAL, 7)
        return report

    def gather(self, kind: type[Kind], count: int) -> list[Kind]:
        """Return the next `count` reports of this kind, without those between them."""
        found: list[Kind] = []
        while len(found) < count:
            report = self.reports.get(timeout=SECONDS)
            if isinstance(report, kind):
                found.append(report)
        return found

    def close(self) -> None:
        """Close in good order; drop the remaining reports."""
        self.connection.close(SECONDS)
        assert self.gather(Disconnected, 1)[0].reason == "closed"
