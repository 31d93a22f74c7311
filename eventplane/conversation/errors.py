"""What can be wrong with a conversation: a closed list."""

from __future__ import annotations

from eventplane.errors import EventPlaneError


class ReplyError(EventPlaneError):
    """An event is no reply that can be read; `detail` says why."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"no reply: {detail}; send what `eventplane.conversation.reply` writes")
        self.detail = detail


class TooManyRequestsError(EventPlaneError):
    """`most` requests are open at once."""

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} requests are open, the most that there may be; wait for some of them")
        self.most = most


class NotAskingError(EventPlaneError):
    """The contract gives `asker` no channel for replies to events of `event_type`."""

    def __init__(self, asker: str, event_type: str) -> None:
        super().__init__(
            f"{asker} does not ask with {event_type!r}; "
            f"add the type to `asks` of participants.{asker} in the contract"
        )
        self.asker = asker
        self.event_type = event_type


class NotOneDeviceError(EventPlaneError):
    """A request goes down to devices, and not to exactly one: nobody could say whose replies are missing."""

    def __init__(self, asker: str) -> None:
        super().__init__(f"{asker}: a request that goes down to devices names one of them in `todevice`")
        self.asker = asker
