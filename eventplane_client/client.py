"""The client: put events, subscribe, read the inbox."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, Unpack

from eventplane.contract import DeliveryGuarantee
from eventplane.conversation import handlers, open_requests
from eventplane.conversation.open_requests import TIMEOUT_S, Circuit, Replies
from eventplane.envelope import Envelope
from eventplane.guarantee import DELIVERY_GUARANTEE, asks_best_effort
from eventplane.sending import sent_again
from eventplane_client.cloud_event import envelope_of
from eventplane_client.conversation import Conversations, NoConversations
from eventplane_client.delivery import NoTelemetry, Telemetry
from eventplane_client.errors import ClosedError, NotAskingError, TooManyRequestsError, UnavailableError
from eventplane_client.inbox import Inbox
from eventplane_client.ports import MessageFilter, Mode, Transport, digest
from eventplane_client.reader import Doubt, ReaderOptions
from eventplane_client.settings import check_arguments
from eventplane_client.system import SYSTEM

if TYPE_CHECKING:
    from eventplane_client.cloud_event import AnyEvent

from eventplane.interest.announcement import Announcement, AnnouncementError, new_announcement
from eventplane_client.errors import InterestError


class InterestStore(Protocol):
    """The announcement of one program, kept as long as the program lives."""

    def announce(self, announcement: Announcement) -> None:
        """In the place of the one before. Raises `UnavailableError`, `ClosedError`."""

    def withdraw(self) -> None:
        """Nobody knows any more; nothing where nothing was announced. Raises `UnavailableError`."""

    def close(self) -> None:
        """The program ends, and takes its announcement with it."""


def checked_announcement(participant: str, filters: Iterable[object]) -> Announcement:
    """The announcement of `filters`. Raises `InterestError` with all that is wrong."""
    try:
        return new_announcement(participant, filters)
    except AnnouncementError as error:
        raise InterestError(participant, error.problems) from error


_log = logging.getLogger(__name__)

INBOX = "inbox"
"""The name of a subscription that is given none."""

_REMEMBERED_PUTS = 1_000

_LEAVE_S = 1.0
"""How long `close` waits for threads that read to leave, seconds."""


class Subscriptions(Protocol):
    """The own routes of a participant."""

    def subscribe(self, name: str, filter: object) -> datetime:
        """Return from when on every event that is put and passes the filter comes into the inbox.

        Raises `SubscriptionError`, `AlreadySubscribedError`, `UnavailableError`.
        """

    def unsubscribe(self, name: str) -> None:
        """Raises `NotSubscribedError`, `UnavailableError`."""


class DeviceServices(Protocol):
    """The services of a forwarder for a participant on its device."""

    def send(self, event: Envelope, timeout_s: float) -> None:
        """See `Client.send`."""

    def flush(self, timeout_s: float) -> None:
        """See `Client.flush`."""

    def state(self, key: str, timeout_s: float) -> Envelope | None:
        """See `Client.state`."""


class Client:
    """Takes part as `participant`; see `connect`. Use it in a `with` block.

    `telemetry` is told what it does; set it before anything else. `is_registered` says whether anything leads
    to its inbox, `has_expired` whether it is too late to hand out an event, as far as the transport knows,
    `retries` when one that fails is tried again and given up, where its message does not say.
    """

    def __init__(
        self,
        participant: str,
        transport: Transport,
        open_filter: Callable[[], MessageFilter],
        subscriptions: Subscriptions,
        *,
        interest: InterestStore | None = None,
        conversations: Conversations | None = None,
        device: DeviceServices | None = None,
        is_registered: Callable[[], bool] = lambda: True,
        **reading: Unpack[ReaderOptions],
    ) -> None:
        self._conversations = conversations or NoConversations("nobody can be asked here", "use `connect`")
        self.participant = participant
        self._transport = transport
        self._open_filter = open_filter
        self._filter: MessageFilter | None = None
        self._subscriptions = subscriptions
        self._interest = interest
        self._device = device
        self._reading = reading
        self._mode = reading.get("mode", Mode.EXACTLY_ONCE)
        self._is_registered = is_registered
        self._system = reading.get("system", SYSTEM)
        self.telemetry: Telemetry = NoTelemetry()
        self._inboxes: list[Inbox] = []
        self._put: OrderedDict[bytes, None] = OrderedDict()
        self._closed = False

    def put(
        self,
        event: AnyEvent,
        timeout_s: float = 30.0,
        *,
        best_effort: bool = False,
    ) -> None:
        """Send an event; when this returns it is kept for good, and goes to every subscriber of it.

        A repetition, by `source` and `id`, is a success and counts once. An event that was received can be
        put again: this participant is its sender then.

        In the mode `at_most_once` it returns before anybody has confirmed the event. So it does with
        `best_effort`, which gives the event the attribute `deliveryguarantee`: each router on its way tries
        it once, and drops it where that fails. An event that has the attribute is sent in the same way.

        Raises:
            EnvelopeError: it is no event.
            NotConfirmedError: not confirmed within `timeout_s` seconds; put it again.
            NoRoomError: the device's store is full; keep it.
            UnroutedError: nobody takes it, as far as the transport knows.
            RefusedError: it can never be delivered.
            ClientSettingsError: the timeout is out of its range.
            UnavailableError: the transport does not answer, or does not allow it.
            ClosedError: the client was closed.
        """
        self._check(timeout_s)
        envelope = _at_best_effort(_own(event)) if best_effort else _own(event)
        is_kept = self._mode is not Mode.AT_MOST_ONCE and not asks_best_effort(envelope)
        key = digest(envelope)
        if key in self._put:
            return
        with self.telemetry.putting(self.participant, envelope) as sent:
            self._transport.put(sent, timeout_s, durable=is_kept)
        self._put[key] = None
        if len(self._put) > _REMEMBERED_PUTS:
            self._put.popitem(last=False)

    def send(self, event: AnyEvent, timeout_s: float = 30.0) -> None:
        """Do what `put` does, but over MQTT return once the event is on its way: for many at a time.

        The client repeats it until the device has stored it; `flush` waits for that. A refusal goes to
        `on_notice` as `Refused`. Raises what `put` raises; `NotConfirmedError` if too many are on their way.
        """
        if self._device is None:
            self.put(event, timeout_s)
            return
        self._check(timeout_s)
        with self.telemetry.putting(self.participant, _own(event)) as sent:
            self._device.send(sent, timeout_s)

    def flush(self, timeout_s: float = 30.0) -> None:
        """Wait until every event of `send` is stored or refused.

        Raises `FlushTimeoutError` after `timeout_s` seconds, `ClientSettingsError`, `ClosedError`.
        """
        self._check(timeout_s)
        if self._device is not None:
            self._device.flush(timeout_s)

    def request(
        self,
        event: AnyEvent,
        timeout_s: float = TIMEOUT_S,
        *,
        durable: bool = True,
        expires: bool = False,
    ) -> Replies:
        """Send an event and wait for what all who handle it reply: their replies, by participant.

        `not_awaited` is one whose circuit is open (see `peers`), `unhandled` one that handles such events no
        more; nobody at all gives no replies. Without `durable` the event is dropped where it cannot be sent
        at once. With `expires` nobody handles it after the timeout. Several threads may ask at once.

        Raises:
            RequestTimeoutError: somebody did not reply within `timeout_s` seconds; it has the replies.
            RequestDroppedError: without `durable`: it could not be sent.
            NotAskingError: the contract does not let the participant ask like this.
            TooManyRequestsError: so many requests are open as there may be.
            ClientSettingsError: the backend needs the contract to know who handles an event, or the timeout
                is out of its range.
            EnvelopeError: it is no event, or a request already.
            NotConfirmedError, NoRoomError, RefusedError, UnavailableError, ClosedError: as of `put`.
        """
        self._check(timeout_s)
        try:
            return self._conversations.request(_own(event), timeout_s, durable=durable, expires=expires)
        except (handlers.NoAskerError, handlers.NotOneDeviceError) as error:
            raise NotAskingError(self.participant, str(error)) from error
        except open_requests.TooManyOpenError as error:
            raise TooManyRequestsError(self.participant, str(error)) from error

    def state(self, key: str, timeout_s: float = 30.0) -> Envelope | None:
        """Return the newest state of `key` (`kind/namespace/name`) that the cloud sent to this device.

        None if there is none, it is deleted, or no route leads it to this service. Newer ones come to the
        inbox: open that first, so that none is missed in between.

        Raises:
            StateTimeoutError: no answer came within `timeout_s` seconds.
            NotAskingError: the device's forwarder does not answer such questions.
            UnavailableError: the client is not on a device.
            ClientSettingsError, ClosedError: as of `put`.
        """
        self._check(timeout_s)
        if self._device is None:
            raise UnavailableError(self.participant, "only a device keeps states")
        return self._device.state(key, timeout_s)

    def peers(self) -> dict[str, Circuit]:
        """The circuit of each peer that was asked: whether requests wait for it."""
        return self._conversations.peers()

    @property
    def ignored_replies(self) -> int:
        """The number of replies that did not count: malformed, of one that was not asked, or in another's
        name.

        Each is logged.
        """
        return self._conversations.ignored_replies

    def subscribe(self, filter: object = None, *, name: str = INBOX, on_doubt: Doubt | None = None) -> Inbox:
        """The participant's inbox; with a `filter` also a route of its own into it, called `name`.

        The filter is a document in a dialect of the contract, `{"exact": {"type": "..."}}`. The route lasts
        until `unsubscribe`; the same name with the same filter is the same subscription. What is put after
        the inbox's `in_force_from` is seen. `on_doubt` is asked whether to hand out an event that was in hand
        at a crash; without it that becomes a dead letter.

        Raises `SubscriptionError`, `AlreadySubscribedError`, `StateError`, `UnavailableError`, `ClosedError`.
        """
        self._check()
        in_force_from = None if filter is None else self._subscriptions.subscribe(name, filter)
        if self._filter is None and self._mode is not Mode.AT_MOST_ONCE:
            self._filter = self._open_filter()
        more = ReaderOptions(on_doubt=on_doubt, telemetry=self.telemetry)
        inbox = Inbox(
            self.participant,
            self._transport,
            self._filter,
            is_registered=self._is_registered,
            in_force_from=in_force_from,
            **self._reading | more,
        )
        self._inboxes.append(inbox)
        return inbox

    def unsubscribe(self, name: str = INBOX) -> None:
        """End the participant's own route `name`; what is in the inbox stays. Raises `NotSubscribedError`."""
        self._subscriptions.unsubscribe(name)

    def announce(self, filters: Iterable[object]) -> None:
        """Say what this program handles: what passes none of `filters` need not come, until `withdraw`.

        Filters are as for `subscribe`; without any, only what is urgent comes. In the cloud it ends with the
        client; on a device it stays, like what comes in the meantime, until `withdraw` or another one. All
        programs that read the inbox announce, or none does.

        Raises `InterestError`, `UnavailableError`, `ClosedError`.
        """
        announcement = checked_announcement(self.participant, filters)
        self._announcer().announce(announcement)

    def withdraw(self) -> None:
        """Take back what was announced: everything comes again. Raises as `announce`."""
        self._announcer().withdraw()

    def _announcer(self) -> InterestStore:
        self._check()
        if self._interest is None:
            raise UnavailableError(self.participant, "its transport carries no interest")
        return self._interest

    def _check(self, timeout_s: float = 0.0) -> None:
        """Raise `ClientSettingsError` for a timeout out of its range, `ClosedError` for a closed client."""
        check_arguments(timeout_s=timeout_s)
        if self._closed:
            raise ClosedError(self.participant)

    def close(self) -> None:
        """End, inboxes first; what they have in hand comes again. A thread that reads ends, too."""
        if self._closed:
            return
        self._closed = True
        with ExitStack() as ends:  # the last one first, and all of them, whatever one raises
            ends.callback(self._close_filter)
            ends.callback(self._transport.close)
            ends.callback(self._conversations.close)
            for inbox in self._inboxes:
                ends.callback(inbox.close, ClosedError(self.participant))
            if self._interest is not None:
                ends.callback(self._interest.close)

    def _close_filter(self) -> None:
        # The closed transport has woken who reads, but over SQS, where a reception ends with its long poll.
        give_up = self._system.monotonic() + _LEAVE_S
        if not all(each.wait_ended(max(0.0, give_up - self._system.monotonic())) for each in self._inboxes):
            text = "%s: another thread still reads; what it receives is given back when its long poll ends"
            _log.warning(text, self.participant)
        elif self._filter:
            self._filter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _own(event: AnyEvent) -> Envelope:
    """The event without what the plane stamped on its way here: it has a new sender now."""
    return sent_again(envelope_of(event))


def _at_best_effort(event: Envelope) -> Envelope:
    """Return the event with the attribute by which it asks for best effort."""
    if asks_best_effort(event):
        return event
    return event.stamped(**{DELIVERY_GUARANTEE: DeliveryGuarantee.BEST_EFFORT})
