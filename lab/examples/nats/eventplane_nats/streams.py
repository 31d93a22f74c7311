"""A channel as a stream of JetStream: its name, its settings, and what becomes of what nobody can handle.

A stream and its one subject are called as the SQS queue of the channel would be. The consumer `READER` hands
each message to one reader at a time, again after `ack_wait` seconds, and `max_deliver` times at most. The
client library keeps the last of these for a dead letter; what no reader lived to make one of stays there.
"""

from dataclasses import dataclass
from typing import Final

from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import NotFoundError

from eventplane.contract import Channel, Contract
from eventplane.limits import MAX_RECEIVES
from eventplane.resource_names import channel_queue, queue_name
from eventplane.sqs_binding import REDRIVEN
from eventplane_client.system import SYSTEM

PROTOCOL: Final = "nats"
"""What contracts call it."""

READER: Final = "reader"
"""The name of each stream's consumer."""

ACK_WAIT_S: Final = 60.0
"""How long a reader has a message before it comes again, unless it asks for more, seconds."""

_DUPLICATES_S: Final = 120.0
"""How long a stream recognises a copy by its `Nats-Msg-Id`, seconds: the default of the server."""


@dataclass(frozen=True, slots=True)
class Fill:
    """The level of a stream: all `messages`, those `in_flight`, and those `given_up`, which come no more."""

    messages: int
    in_flight: int
    given_up: int


def stream_name(environment: str, channel: str) -> str:
    """Return what the stream of the channel `participant.box` is called."""
    return queue_name(environment, channel.replace(".", "-"))


def channels(contract: Contract) -> list[Channel]:
    """Return the channels that the contract gives to NATS."""
    return [each for each in contract.channels if each.transport == PROTOCOL]


async def make_stream(
    jetstream: JetStreamContext,
    environment: str,
    channel: Channel,
    *,
    replicas: int = 1,
    ack_wait_s: float = ACK_WAIT_S,
    max_deliver: int = MAX_RECEIVES,
) -> str:
    """Create the stream of `channel`, or change it to what the contract says; return its name."""
    name = queue_name(environment, channel_queue(channel))
    config = StreamConfig(
        name=name,
        subjects=[name],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
        max_age=channel.retention_s,
        discard=DiscardPolicy.NEW,
        duplicate_window=min(_DUPLICATES_S, channel.retention_s),
        num_replicas=replicas,
    )
    try:
        await jetstream.update_stream(config)
    except NotFoundError:
        await jetstream.add_stream(config)
    await jetstream.add_consumer(name, _reader(ack_wait_s, max_deliver))
    return name


async def level(jetstream: JetStreamContext, stream: str) -> Fill:
    """Return how full `stream` is."""
    consumer = await jetstream.consumer_info(stream, READER)
    messages = (await jetstream.stream_info(stream)).state.messages
    in_flight = consumer.num_ack_pending or 0
    return Fill(messages, in_flight, max(0, messages - in_flight - (consumer.num_pending or 0)))


async def redrive(jetstream: JetStreamContext, stream: str) -> None:
    """Let everything in `stream` come again, also what was given up, as if for the first time.

    What is in flight comes a second time: stop its readers first. Readers that connect afterwards also hand
    out what was in hand at a crash: the operator has decided that.
    """
    config = (await jetstream.consumer_info(stream, READER)).config
    last = (await jetstream.stream_info(stream)).state.last_seq
    again = f"{REDRIVEN} {last} {SYSTEM.random_bytes(8).hex()}"
    await jetstream.delete_consumer(stream, READER)
    await jetstream.add_consumer(
        stream, _reader(config.ack_wait or ACK_WAIT_S, config.max_deliver or -1, again)
    )


def redriven(config: ConsumerConfig) -> tuple[int, str | None]:
    """Return the number of the last message that an operator sent back, and the mark of that; 0 for none."""
    match (config.description or "").split():
        case [word, number, mark] if word == REDRIVEN:
            return int(number), mark
    return 0, None


def _reader(ack_wait_s: float, max_deliver: int, description: str | None = None) -> ConsumerConfig:
    return ConsumerConfig(
        durable_name=READER,
        description=description,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ack_wait_s,
        max_deliver=max_deliver,
    )
