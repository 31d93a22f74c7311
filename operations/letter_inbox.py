"""Where dead-letter events wait: whichever inbox the contract leads them to."""

from __future__ import annotations

from eventplane.contract import Contract, Place
from eventplane.dead_letter import Refusal, dead_letter
from eventplane.router import Router
from operations.errors import NoLetterInboxError
from operations.queues import PlaneQueues


def letter_inbox(contract: Contract, queues: PlaneQueues) -> tuple[str, str]:
    """Address and queue URL of the first inbox that gets dead letters. Raises `NoLetterInboxError`."""
    sample = dead_letter(
        id="sample",
        source="/eventplane",
        time="1970-01-01T00:00:00Z",
        refusal=Refusal("sample", "sample"),
        channel=contract.device.outbox.address,
        original=b"",
        contract_version=contract.version,
    )
    addresses = [route.destination for route in Router(contract, Place.CLOUD).route(sample)]
    for address in addresses:
        if address in queues.channel_urls:
            return address, queues.channel_urls[address]
    raise NoLetterInboxError(addresses[0] if addresses else None)
