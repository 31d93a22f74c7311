"""The dead-letter queues of one environment, found by their names: also those of participants long gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eventplane import resource_names
from eventplane.contract import Contract, ParticipantKind
from eventplane.contract.publication import cloud_inboxes
from operations.cloud import Cloud
from operations.errors import NotDeployedHereError, UnknownQueueError
from operations.reading import counts


@dataclass(frozen=True, slots=True)
class DeadLetterQueue:
    """One dead-letter queue, and the `source` queue that its messages come from, both by full name.

    `channel` is what the source queue carries, where the contract has it; `source_url` is None when the
    source queue is gone.
    """

    name: str
    url: str
    source: str
    source_url: str | None
    channel: str | None


class PlaneQueues:
    """All queues of `environment`. Raises `NotDeployedHereError` when there are none."""

    def __init__(self, cloud: Cloud, environment: str, contract: Contract) -> None:
        self._sqs = cloud.sqs
        prefix = resource_names.resource_name(environment, "")
        # Without a page size SQS stops at 1,000 queues and does not say so.
        paginator = cloud.sqs.get_paginator("list_queues")
        pages = paginator.paginate(QueueNamePrefix=prefix, PaginationConfig={"PageSize": 1_000})
        urls = [url for page in pages for url in page.get("QueueUrls", [])]
        self.urls: Mapping[str, str] = {url.rsplit("/", 1)[1]: url for url in urls}
        if not self.urls:
            raise NotDeployedHereError(environment, cloud.account, cloud.region)
        self._prefix = prefix
        self._channels = _channels(contract, environment)
        self.channel_urls: Mapping[str, str] = {
            address: self.urls[name] for name, address in self._channels.items() if name in self.urls
        }
        self.ingest_url = self.urls.get(resource_names.queue_name(environment, resource_names.INGEST))
        self.ledger_url = self.urls.get(resource_names.queue_name(environment, resource_names.LEDGER_QUEUE))

    @property
    def dead_letter_queues(self) -> list[DeadLetterQueue]:
        """Every dead-letter queue, by name."""
        pairs = ((name, resource_names.source_queue(name)) for name in sorted(self.urls))
        return [
            DeadLetterQueue(name, self.urls[name], source, self.urls.get(source), self._channels.get(source))
            for name, source in pairs
            if source is not None
        ]

    @property
    def missing(self) -> list[str]:
        """Channels of the contract that have no queue here: the contract is newer than the deployment."""
        return sorted(set(self._channels.values()) - set(self.channel_urls))

    def chosen(self, names: list[str]) -> list[DeadLetterQueue]:
        """The dead-letter queues called so: by channel, by the source queue or by their own name, with or
        without what all names start with; all of them for no name. Raises `UnknownQueueError`."""
        found = self.dead_letter_queues
        if not names:
            return found
        return [self._one(found, name) for name in dict.fromkeys(names)]

    def _one(self, found: list[DeadLetterQueue], name: str) -> DeadLetterQueue:
        for each in found:
            full = {each.name, each.source}
            if name == each.channel or name in full | {known.removeprefix(self._prefix) for known in full}:
                return each
        known = [each.channel or each.source.removeprefix(self._prefix) for each in found]
        raise UnknownQueueError(name, known)

    def counts(self, url: str) -> tuple[int, int]:
        """About how many messages wait in a queue, and how many somebody is reading (SQS approximates)."""
        return counts(self._sqs, url)


def _channels(contract: Contract, environment: str) -> dict[str, str]:
    """The channels that queues carry: address by the queue's full name."""
    outboxes = (service.outbox for service in contract.of_kind(ParticipantKind.CLOUD_SERVICE))
    return {
        resource_names.queue_name(
            environment, resource_names.channel_queue(channel), is_fifo=resource_names.is_fifo(channel)
        ): channel.address
        for channel in (*cloud_inboxes(contract), *outboxes)
        if resource_names.has_queue(channel)
    }
