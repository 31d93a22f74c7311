"""A connection under test, and its reports."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, TypeVar

from eventplane_mqtt import Connection, Endpoint, TlsFiles
from eventplane_mqtt.mailbox import (
    Acknowledged,
    Connected,
    Disconnected,
    LinkName,
    Mailbox,
    Message,
    Received,
)
from lab.things import Authority, DeviceIdentity

SECONDS = 60.0
"""How long anything may take on a busy machine; nothing here is about speed."""

ENDPOINT = Endpoint("127.0.0.1", 1, "c", False, 30, 10.0, ("t",))

Kind = TypeVar("Kind", Connected, Disconnected, Received, Acknowledged)


def files(authority: Authority, identity: DeviceIdentity) -> TlsFiles:
    """What proves `identity` to a server, and the server's to us."""
    return TlsFiles(authority.ca, identity.certificate, identity.key)


class Probe:
    """A connection of generation 7 with a lasting session, subscribed to `t`; `changes` of the endpoint."""

    def __init__(self, port: int, **changes: Any) -> None:
        self.reports: SimpleQueue[Message] = SimpleQueue()
        endpoint = replace(ENDPOINT, port=port, **changes)
        self.connection = Connection(endpoint, LinkName.LOCAL, 7, self.reports.put)

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


class Slow:
    """A connection with a share, whose loop takes messages only when a test says so."""

    def __init__(self, port: int, limit_bytes: int, **changes: Any) -> None:
        self.mailbox: Mailbox[Message] = Mailbox()
        self.share = self.mailbox.share(LinkName.LOCAL, limit_bytes)
        endpoint = replace(ENDPOINT, port=port, **changes)
        self.connection = Connection(endpoint, LinkName.LOCAL, 7, self.mailbox.put, self.share)
        self.most_bytes = 0
        put = self.share.put

        def measure(messages: Iterable[Received]) -> None:
            put(messages)
            self.most_bytes = max(self.most_bytes, self.share.waiting_bytes)

        self.share.put = measure  # type: ignore[method-assign]

    def batches(self) -> Iterator[list[Message]]:
        while True:
            batch = self.mailbox.wait(SECONDS)
            assert batch, "nothing came"
            yield batch
            self.connection.acknowledge(*(each.mid for each in batch if isinstance(each, Received)))

    def receive(self, count: int) -> list[Received]:
        """Take and acknowledge `count` messages."""
        found: list[Received] = []
        for batch in self.batches():
            assert not any(isinstance(each, Disconnected) for each in batch), batch
            found += [each for each in batch if isinstance(each, Received)]
            if len(found) >= count:
                return found
        return found
