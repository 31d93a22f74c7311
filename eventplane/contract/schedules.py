"""When the events of a channel are tried again and given up; no device needs that (ADR 44)."""

from __future__ import annotations

from eventplane.contract import Channel, Ordering, Priority, Transport
from eventplane.limits import MAX_RECEIVES
from eventplane.names import DOWNLINK, MONITOR
from eventplane.retries import RetrySchedule, default_give_up_s


def schedule_of(channel: Channel, priority: Priority) -> RetrySchedule:
    """Return when an event of `priority` on `channel` that fails is tried again, and when it is given up."""
    is_ordered = channel.ordering is Ordering.SOURCE
    is_urgent = priority is Priority.URGENT
    give_up_after_s = channel.give_up_after_s or default_give_up_s(
        channel.retention_s, is_urgent=is_urgent, is_ordered=is_ordered and channel.box == "inbox"
    )
    return RetrySchedule(is_urgent, is_ordered, give_up_after_s, channel.max_receives)


def most_receives(channel: Channel, priority: Priority) -> int:
    """Return the receives before the dead-letter queue of a queue that carries `channel` at `priority`.

    Urgent ones, and those whose readers give up by themselves, have all that SQS counts. The plane's
    functions let the queue give up what they cannot settle: by the receives that their schedule makes.
    """
    is_own = channel.participant in (DOWNLINK, MONITOR) or channel.transport is Transport.IOT_CORE
    if priority is Priority.URGENT or (channel.box == "inbox" and not is_own):
        return MAX_RECEIVES
    return schedule_of(channel, priority).most_receives
