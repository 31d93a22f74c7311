"""Read an inbox: claim, hand out, acknowledge, requeue, dead-letter."""

from __future__ import annotations

import itertools
import logging
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from traceback import extract_tb
from typing import Final, TypedDict

from eventplane.conversation.messages import Failure, Reply, Status, is_request, replier_to, write_reply
from eventplane.dead_letter import DEAD_LETTER_TYPE, Refusal
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.expiry import expires_at_ms
from eventplane.guarantee import is_expired
from eventplane.ordering import Stream, position_in
from eventplane.reader_receipts import SETTLED_BEFORE
from eventplane.reasons import Outcome, Reason
from eventplane.retries import URGENT, RetrySchedule, is_reported
from eventplane.values import timestamp
from eventplane_client.delivery import Delivery, NoTelemetry, Telemetry
from eventplane_client.errors import (
    AlreadySettledError,
    ClientError,
    RefusedError,
    StateError,
    UnhandleableError,
)
from eventplane_client.letters import letter
from eventplane_client.notices import DeadLettered, EpochWatch, Expired, InDoubt, Listener, log_notice
from eventplane_client.packs import UnpackingTransport
from eventplane_client.ports import Message, MessageFilter, Mode, Transport, Verdict, digest
from eventplane_client.resequencer import GAP_TIMEOUT_S, MOST_HELD, Resequencer
from eventplane_client.system import SYSTEM, System
from eventplane_client.visibility import VisibilityExtender

_log = logging.getLogger(__name__)

PREFETCH = 10
"""Most messages of one reception (Amazon SQS quotas)."""

LONG_POLL_S = 20.0
"""Longest that one reception waits, seconds (Amazon SQS quotas)."""

_PUT_S = 30.0
_MOST_FAILING = 10_000
"""Events of which it is remembered since when they fail: those that failed last."""
_HANDED_OUT = (Verdict.NEW, Verdict.DOUBT)
"""Verdicts on an event by which a copy beside it is in this reader's hands."""
_BUSY_S = 30
"""Wait before what cannot be settled now, or is in other hands, is looked at again, seconds."""

Judge = Callable[[Envelope], bool]
"""Asked of an event before it is handed out: whether it has expired."""

Retries = Callable[[Envelope], RetrySchedule]
"""Gives the schedule of an event."""

Doubt = Callable[[Envelope], bool]
"""Asked of an event that was in hand at a crash: whether to hand it out again. Its program can look."""


class ReaderOptions(TypedDict, total=False):
    """The options of `Reader`, by name."""

    mode: Mode
    on_notice: Listener
    on_doubt: Doubt | None
    gap_timeout_s: float
    most_held: int
    telemetry: Telemetry | None
    has_expired: Judge | None
    retries: Retries
    system: System


class Reader:
    """Reads for `participant`. `filter` is None for what needs none. One thread at a time.

    What `has_expired` is not handed out, and ends; without it the queue's clock decides, or this machine's
    where the transport does not tell that. `retries` gives
    the schedule of an event whose message has none.
    """

    def __init__(
        self,
        participant: str,
        transport: Transport,
        filter: MessageFilter | None,
        *,
        mode: Mode = Mode.EXACTLY_ONCE,
        on_notice: Listener = log_notice,
        on_doubt: Doubt | None = None,
        gap_timeout_s: float = GAP_TIMEOUT_S,
        most_held: int = MOST_HELD,
        telemetry: Telemetry | None = None,
        has_expired: Judge | None = None,
        retries: Retries = lambda _: URGENT,
        system: System = SYSTEM,
    ) -> None:
        self._participant = participant
        self._transport = UnpackingTransport(transport, at_once=mode is Mode.AT_MOST_ONCE)
        self._filter = filter if mode is Mode.EXACTLY_ONCE else None
        is_lasting = filter is not None and filter.is_lasting
        self._marks = filter if mode is Mode.AT_LEAST_ONCE and is_lasting else None
        self._is_lasting = is_lasting
        self._retries = retries
        self._failing: OrderedDict[bytes, float | None] = OrderedDict()
        self._mode = mode
        self._on_notice = on_notice
        self._on_doubt = on_doubt
        self._telemetry = telemetry or NoTelemetry()
        self._system = system
        self._judge = has_expired
        self._buffer: deque[Delivery] = deque()
        self._cannot_claim = False
        self._taken = 0  # from the buffer, since the last reception
        self._positions = filter
        self._withheld: dict[Stream, list[Delivery]] = {}
        self._order = Resequencer[Delivery](gap_timeout_s, on_notice, self._position, most_held)
        self._extender = VisibilityExtender(self._transport, self._filter, participant, system)
        self._epochs = EpochWatch(filter, on_notice)

    def next(self, most: int, timeout_s: float, handled: Sequence[Delivery] = ()) -> list[Delivery]:
        """Up to `most` events that may be handed out, none when `timeout_s` seconds have passed.

        `handled` are done, in the same step if one is there. Raises `StateError`, `UnavailableError`; then
        nothing is handed out and nothing lost.
        """
        give_up = self._system.monotonic() + timeout_s
        for each in handled:
            each.is_handled = True
        while True:
            now = self._system.monotonic()
            self._queue(self._order.due(now))
            if self._buffer and self._taken >= PREFETCH and not self._transport.is_filled:
                # A gap that ended may have let go thousands: an alarm does not wait for them.
                self._receive(0.0)
            if self._buffer:
                out = self._hand_out(most, handled)
                handled = ()
                if out:
                    return out
                continue
            deadline = self._order.deadline()
            until = give_up if deadline is None else min(give_up, deadline)
            # With something handled it only looks: if nothing is there, that must not wait along.
            wait_s = 0.0 if handled else max(0.0, min(LONG_POLL_S, until - now))
            self._receive(wait_s)
            if handled and not self._buffer:
                self.settle(handled)
                handled = ()
                continue
            if not self._buffer and self._system.monotonic() >= give_up:
                return []

    def settle(self, handled: Sequence[Delivery], *, refused: str | None = None) -> None:
        """They are done, for good; `refused` is why they were not handed out.

        Raises `AlreadySettledError`, `StateError`.
        """
        _check_open(handled)
        for each in handled:
            each.is_handled = True
        if handled and self._filter:
            self._filter.claim((), [each.key for each in handled])
        self._end(handled, refused)

    def reply_to(self, handled: Delivery, answer: object) -> None:
        """Before it is settled: after a crash in between the reply is repeated, and counts once."""
        if not handled.is_settled:
            self._reply(handled.event, Status.HANDLED, answer)

    def give_back(self, failed: Delivery, error: BaseException | str, *, is_failure: bool = True) -> None:
        """Let it come again, or make a dead letter of it: when its time is over, or if unhandleable."""
        _check_open([failed])
        failed.told(error)
        message = failed.message
        if self._mode is Mode.AT_MOST_ONCE:
            if is_failure:
                self._report(failed, error, None)
            self._end([failed])
            self._reply(failed.event, Status.FAILED, failure=_failure(error))
            return
        if is_failure:
            schedule, age_s = self._schedule(failed), self._failing_s(failed)
            wait_s = schedule.wait_s(age_s, message.attempt, self._chance())
            is_over = schedule.is_over(age_s) or message.attempt >= self._transport.max_receives
            is_last = isinstance(error, UnhandleableError) or is_over
            self._report(failed, error, None if is_last else wait_s, schedule.give_up_after_s - age_s)
            is_letter = failed.event.type == DEAD_LETTER_TYPE
            refusal = Refusal(*astuple(_failure(error)))
            if is_last and not is_letter and self._bury(message, failed, refusal, _place(error)):
                return
        else:
            wait_s = self._pause_s(failed)
        self._free([failed])  # may fail: then it is still in its reader's hands, who can give it back again
        failed.is_settled = True
        self._let_come(failed, wait_s)
        self._hold_back_after(failed)

    def close(self) -> None:
        """Give back what was not handed out: it is redelivered at once to any reader."""
        waiting = [*self._buffer, *self._order.drain(), *itertools.chain(*self._withheld.values())]
        self._buffer.clear()
        self._withheld.clear()
        try:
            self._free([each for each in waiting if each.is_claimed and not each.is_settled])
        finally:
            for each in waiting:
                self._let_come(each, self._pause_s(each))
            self._extender.close()

    def _schedule(self, delivery: Delivery) -> RetrySchedule:
        return delivery.message.retries or self._retries(delivery.event)

    def _chance(self) -> float:
        return self._system.random_bytes(1)[0] / 256

    def _age_s(self, delivery: Delivery) -> float:
        """For how long deliveries of it have been tried, seconds, as far as the transport knows."""
        message = delivery.message
        if message.attempt == 1:
            return 0.0
        if message.age_s is None:
            return self._schedule(delivery).least_age_s(message.attempt)
        return message.age_s + self._system.monotonic() - delivery.received_s

    def _failing_s(self, failed: Delivery) -> float:
        """For how long it has failed, seconds: from its first failed attempt, not from its reception."""
        now = self._system.monotonic()
        since = self._failing.pop(failed.key, now - self._age_s(failed))
        self._failing[failed.key] = since = now if since is None else since
        if len(self._failing) > _MOST_FAILING:
            self._failing.popitem(last=False)
        return now - since

    def _pause_s(self, delivery: Delivery) -> float:
        """How long it waits that was not handled and did not fail.

        Where nothing else tells a reader that died from one that gave back, the receives do, by their age.
        While claims fail, other readers' fail as well: without a wait they would use up the receives.
        """
        attempt = delivery.message.attempt
        if not self._cannot_claim and (attempt == 1 or self._is_lasting):
            return 0.0
        return self._schedule(delivery).wait_s(self._age_s(delivery), attempt, self._chance())

    def _report(
        self, failed: Delivery, error: BaseException | str, wait_s: float | None, left_s: float = 0.0
    ) -> None:
        """Count a failure and log it."""
        self._telemetry.failed(self._participant, error, is_last=wait_s is None)
        attempt = failed.message.attempt
        sender, source, id = failed.event.key
        then = "it is given up" if wait_s is None else f"again in {wait_s:.0f} s, given up in {left_s:.0f} s"
        text = "%s: attempt %d at event %s of %s, sent by %s, failed: %s; %s"
        said, trace = Failure.of(error).text, error if isinstance(error, BaseException) else None
        level = logging.WARNING if is_reported(attempt, is_last=wait_s is None) else logging.DEBUG
        _log.log(level, text, self._participant, attempt, id, source, sender, said, then, exc_info=trace)

    def _receive(self, wait_s: float) -> None:
        self._taken = 0
        for message in self._transport.receive(PREFETCH, wait_s):
            self._admit(message)
        self._queue(self._order.due(self._system.monotonic()))

    def _queue(self, deliveries: Iterable[Delivery]) -> None:
        """Put `deliveries` into the buffer, each behind what is as urgent."""
        for each in deliveries:
            at = len(self._buffer)
            while at and self._buffer[at - 1].rank > each.rank:
                at -= 1
            self._buffer.insert(at, each)

    def _admit(self, message: Message) -> None:
        try:
            event = parse_event(message.body)
        except EnvelopeError as error:
            self._bury(message, None, Refusal(error.reason, error.detail))
            return
        # Events that a redriven message carries besides the one that failed may be done: they stay so.
        key = digest(event, None if message.is_shared else message.redrive)
        position, now = position_in(event, self._participant), self._system.monotonic()
        delivery = Delivery(event, message, key, position, now)
        self._extender.hold(message, delivery.key)
        self._line_up(delivery)

    def _line_up(self, delivery: Delivery) -> None:
        if delivery.position is None:
            self._queue([delivery])
            return
        # The transport may take away what is not handed out now: that is worse than a lost order.
        is_last = delivery.message.attempt >= self._transport.max_receives
        add = self._order.add_last if is_last else self._order.add
        now = self._system.monotonic()
        self._queue(add(*delivery.position, delivery, now, now - delivery.message.waited_s))

    def _position(self, stream: Stream) -> int | None:
        """How far other readers have come; None where that cannot be asked, and is asked again."""
        if self._positions is None:
            return None
        try:
            return self._positions.position(stream)
        except StateError as error:
            _log.warning("%s: %s", self._participant, error)
            return None

    def _hand_out(self, most: int, handled: Sequence[Delivery]) -> list[Delivery]:
        """The first of the buffer that nobody had; the others find their end."""
        wanted = [self._buffer.popleft() for _ in range(min(most, len(self._buffer)))]
        self._taken += len(wanted)
        out = wanted
        try:
            verdicts = self._claim(wanted, handled)
            out = []
            self._buffer.extendleft(reversed(wanted))
            for each in wanted:
                if not self._buffer or self._buffer[0] is not each:
                    continue  # one before it comes again, and holds it back
                out.append(self._buffer.popleft())
                if not self._may_go(each, verdicts[each.message]):
                    out.pop()
            if self._mode is Mode.AT_MOST_ONCE:
                out = self._forgotten(out)
            for each in out:
                self._epochs.see(each.event)
                each.handling = self._telemetry.begin(self._participant, each.event, each.message)
        except BaseException:
            # They are in our hands, and may be claimed: the next call goes on with them.
            self._buffer.extendleft(each for each in reversed(out) if not each.is_settled)
            raise
        return out

    def _forgotten(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Those that cannot come again; what can, is handed out when it does."""
        for each in deliveries:
            self._extender.let_go(each.message)
            self._leave_receipt(each)
        kept = self._transport.acknowledge([each.message for each in deliveries])
        for each in deliveries:
            each.is_acknowledged = True
            if each.message in kept and self._transport.receipts:
                self._transport.receipts.withdraw(each)
        return [each for each in deliveries if each.message not in kept]

    def _leave_receipt(self, settled: Delivery) -> None:
        if self._transport.receipts and not settled.is_acknowledged:
            self._transport.receipts.add(settled)

    def _claim(self, wanted: Sequence[Delivery], handled: Sequence[Delivery]) -> dict[Message, Verdict]:
        if self._filter is None:
            self.settle(handled)
            return {each.message: Verdict.NEW for each in wanted}
        _check_open(handled)
        first: dict[bytes, Delivery] = {}
        for each in wanted:
            if not each.is_claimed:
                first.setdefault(each.key, each)
        self._cannot_claim = True  # unless this returns
        found = self._filter.claim(list(first), [each.key for each in handled])
        self._cannot_claim = False
        self._end(handled)
        by_key = dict(zip(first, found, strict=True))
        verdicts: dict[Message, Verdict] = {}
        for each in wanted:
            verdict = Verdict.NEW if each.is_claimed else by_key[each.key]
            if not each.is_claimed and each is not first[each.key] and verdict in _HANDED_OUT:
                verdict = Verdict.MINE
            verdicts[each.message] = verdict
            each.is_claimed = verdict is Verdict.NEW
        return verdicts

    def _may_go(self, delivery: Delivery, verdict: Verdict) -> bool:
        match verdict:
            case Verdict.NEW | Verdict.DOUBT if self._has_expired(delivery):
                self._expire(delivery)
            case Verdict.NEW:
                # By a lasting filter the attempts before were never handed out: they prove nothing.
                is_unproven = self._filter is not None
                return (is_unproven and self._is_lasting) or self._is_within_limit(
                    delivery, is_unproven=is_unproven
                )
            case Verdict.DONE:
                delivery.reason = SETTLED_BEFORE
                self._end([delivery])
            case Verdict.MINE | Verdict.BUSY:
                if verdict is Verdict.BUSY and self._is_last(delivery):
                    # The other reader may have crashed: a dead letter too many is better than a lost event.
                    detail = "the channel delivered it for the last time, and another reader had it in hand"
                    self._give_up(delivery, Refusal(Reason.IN_DOUBT, detail))
                else:
                    # Behind the end of the other's lease: each look costs a receive.
                    lease_s = self._transport.visibility_s or 0.0 if verdict is Verdict.BUSY else 0.0
                    self._put_off(delivery, max(_BUSY_S, lease_s), is_mine=verdict is Verdict.MINE)
            case Verdict.DOUBT:
                return self._decide(delivery)
        return False

    def _has_expired(self, delivery: Delivery) -> bool:
        event, message = delivery.event, delivery.message
        if self._judge:
            return self._judge(event)
        if message.sent_at_ms is None or message.present_ms is None:
            return is_expired(event, self._system.now_ms())
        ends_ms = expires_at_ms(event, message.sent_at_ms)
        held_ms = 1_000 * (self._system.monotonic() - delivery.received_s)
        return ends_ms is not None and ends_ms <= message.present_ms + held_ms

    def _expire(self, delivery: Delivery) -> None:
        """End what came too late; also what was in hand at a crash, since nobody may handle it any more."""
        delivery.outcome = Outcome.EXPIRED
        self.settle([delivery], refused=Outcome.EXPIRED)
        self._telemetry.expired(self._participant, delivery.event)
        self._on_notice(Expired(*delivery.event.key))

    def _decide(self, delivery: Delivery) -> bool:
        """Whether what was in hand at a crash is handed out again."""
        event = delivery.event
        again = self._is_wanted_again(delivery)
        if again is None:
            refusal = Refusal(Reason.IN_DOUBT, "its reader ended while it had the event in hand")
            if not self._give_up(delivery, refusal):
                return False
        elif not again:
            self.settle([delivery])
        elif not self._is_within_limit(delivery):
            return False
        elif self._filter:
            (verdict,) = self._filter.claim([delivery.key], force=True)
            if verdict not in (Verdict.NEW, Verdict.DOUBT):
                self._put_off(delivery)  # another reader was quicker
                return False
            delivery.is_claimed = True
        self._on_notice(InDoubt(*event.key, again=bool(again)))
        return bool(again)

    def _is_wanted_again(self, delivery: Delivery) -> bool | None:
        """Return whether the operator or the program wants an event in doubt again; None: neither decides."""
        if delivery.message.redrive is not None and delivery.message.is_shared:
            return True
        return self._on_doubt(delivery.event) if self._on_doubt else None

    def _is_last(self, delivery: Delivery) -> bool:
        """Whether the channel may take it away instead of delivering it again."""
        attempt = delivery.message.attempt
        return attempt > self._transport.max_receives and delivery.event.type != DEAD_LETTER_TYPE

    def _is_within_limit(self, delivery: Delivery, *, is_unproven: bool = False) -> bool:
        """Whether not too many deliveries ended without a settlement: its reader died each time.

        `is_unproven`: it is not known whether a handler ever got it.
        """
        is_last, tries = False, self._unsettled(delivery)
        most = self._schedule(delivery).max_receives
        if not is_unproven:
            is_last, most = self._is_last(delivery), min(most, self._transport.max_receives)
        if delivery.event.type == DEAD_LETTER_TYPE or not (is_last or tries >= most):
            return True
        self._give_up(delivery, Refusal(Reason.MAX_RECEIVES, f"delivered {tries} times and never settled"))
        return False

    def _unsettled(self, delivery: Delivery) -> int:
        """How many deliveries in a row ended without a settlement, as far as anything can tell.

        A lasting filter knows. It also keeps a mark of what an at-least-once reader gets again and hands out;
        the first delivery has none. Without it, those count that are too many for the age of the event.
        """
        message = delivery.message
        if self._filter and self._is_lasting:
            # What was tried before an operator sent it back does not count against it.
            return self._filter.tries(delivery.key) if message.redrive is None else 0
        if message.attempt == 1:
            return 0
        if self._marks is None:
            if delivery.position:
                return 0  # it came back at once, time and again, for what is in front of it
            return message.attempt - self._schedule(delivery).receives(self._age_s(delivery))
        if delivery.is_claimed:
            return 0
        try:
            tries = self._marks.tries(delivery.key)
            delivery.is_claimed = self._marks.claim([delivery.key], force=True)[0] in _HANDED_OUT
        except StateError as error:
            _log.warning("%s: a reader that dies of this event is not noticed: %s", self._participant, error)
            return 0
        return tries + 1 if tries else 0

    def _give_up(self, delivery: Delivery, refusal: Refusal) -> bool:
        """Make a dead letter of it; if that fails now, it comes again and False is returned."""
        is_buried = self._bury(delivery.message, delivery, refusal)
        if not is_buried:
            self._put_off(delivery)
        return is_buried

    def _put_off(self, delivery: Delivery, wait_s: float = _BUSY_S, *, is_mine: bool = False) -> None:
        delivery.is_settled = True
        self._let_come(delivery, wait_s)
        # A copy of what this reader has in hand holds nothing back, but in a queue that keeps it in front.
        if delivery.message.group is not None or not is_mine:
            self._hold_back_after(delivery)

    def _let_come(self, delivery: Delivery, wait_s: float) -> None:
        self._extender.let_go(delivery.message)
        self._transport.release(delivery.message, wait_s)

    def _free(self, deliveries: Sequence[Delivery]) -> None:
        if self._filter and deliveries:
            self._filter.release([each.key for each in deliveries])
        self._unmark(deliveries)

    def _unmark(self, deliveries: Sequence[Delivery]) -> None:
        marked = [each.key for each in deliveries if each.is_claimed]
        if not (self._marks and marked):
            return
        try:
            self._marks.release(marked)
        except StateError as error:
            _log.warning("%s: a mark stays: %s", self._participant, error)

    def _end(self, handled: Sequence[Delivery], refused: str | None = None) -> None:
        self._unmark(handled)
        for each in handled:
            each.is_settled = True
            each.told()
            self._failing.pop(each.key, None)
            self._leave_receipt(each)
        ended = self._advance(handled)
        for each in ended:
            self._extender.let_go(each.message)
        here = [each for each in ended if not each.is_acknowledged]
        if now := [each.message for each in here if each in handled]:
            self._transport.acknowledge(now, refused=refused)
        if before := [each.message for each in here if each not in handled]:
            self._transport.acknowledge(before)

    def _advance(self, handled: Sequence[Delivery]) -> list[Delivery]:
        """Store how far the streams of what is done have come. Return what the transport may forget.

        What is done before something in front of it comes again if this reader ends, so that the next one
        knows: it is withheld for as long as this reader has the other in hand, and else put back.
        """
        ended = [each for each in handled if each.position is None]
        positions: dict[Stream, int] = {}
        for each in handled:
            if each.position is not None:
                stream, number = each.position
                positions[stream] = self._order.done(stream, number)
                self._withheld.setdefault(stream, []).append(each)
        for stream, position in positions.items():
            withheld = self._withheld.pop(stream)
            # What would come for the last time, must not come again to be taken away.
            early = [
                each
                for each in withheld
                if each.position
                and each.position[1] >= position
                and each.message.attempt < self._transport.max_receives
                and not each.is_acknowledged
            ]
            ended += [each for each in withheld if each not in early]
            if early and self._order.is_in_hand(stream, position):
                self._withheld[stream] = early
            else:
                self._put_back(stream, early)
            self._store(stream, position)
        return ended

    def _put_back(self, stream: Stream, early: Sequence[Delivery]) -> None:
        """Let come again what is done, and has its turn after something that another reader may have."""
        self._order.comes_again(stream, {each.position[1] for each in early if each.position})
        for each in early:
            self._let_come(each, 0)

    def _store(self, stream: Stream, position: int) -> None:
        if self._positions is None or not self._order.is_news(stream, position):
            return
        try:
            self._positions.advance(stream, position)
        except StateError as error:
            _log.warning("%s: %s", self._participant, error)
        else:
            self._order.stored(stream, position)

    def _hold_back_after(self, failed: Delivery) -> None:
        """Nothing that follows `failed` in its order may go before it."""
        group = failed.message.group
        if failed.position is not None:
            stream, number = failed.position
            followers = [
                each
                for each in self._buffer
                if each.position and each.position[0] == stream and each.position[1] >= number
            ]
            withheld = self._withheld.pop(stream, [])
            behind = {each.position[1] for each in (*followers, *withheld) if each.position}
            self._order.rewind(stream, number, behind)
            self._put_back(stream, withheld)
        else:
            followers = [each for each in self._buffer if group is not None and each.message.group == group]
        self._unclaim(followers)
        for each in followers:
            self._failing.setdefault(each.key, None)
            self._buffer.remove(each)
            if failed.position is not None:
                self._line_up(each)
            else:
                self._let_come(each, 0)

    def _unclaim(self, deliveries: Sequence[Delivery]) -> None:
        """Let other readers have what is held back: it is claimed again when it goes on."""
        claimed = [each for each in deliveries if each.is_claimed]
        try:
            self._free(claimed)
        except StateError as error:
            _log.warning("%s: %s", self._participant, error)
            return  # still claimed, and renewed
        for each in claimed:
            each.is_claimed = False

    def _reply(
        self, event: Envelope, status: Status, answer: object = None, failure: Failure | None = None
    ) -> None:
        if not is_request(event):
            return
        reply = Reply(replier_to(event, self._participant), status, answer, failure)
        try:
            written = write_reply(event, reply, timestamp(self._system.now()))
            self._transport.put(written, _PUT_S, durable=True)
        except ClientError as error:
            # The work is done, and must not be done again for the sake of telling.
            _log.warning("%s: a reply is lost: %s", self._participant, error)

    def _bury(self, message: Message, delivery: Delivery | None, refusal: Refusal, place: str = "") -> bool:
        """Make a dead letter of what is not handled any more; False, with nothing changed, if it fails now.

        The letter alone has the `place` of the last failure.
        """
        event = delivery.event if delivery else None
        refused = None
        try:
            reason = Refusal(refusal.reason, refusal.detail + place)
            letter_event = letter(self._participant, message, event, reason, self._system.now())
            self._transport.put(letter_event, _PUT_S, durable=True)
        except ClientError as error:
            is_final = isinstance(error, RefusedError)
            level = logging.ERROR if is_final else logging.WARNING
            _log.log(level, "%s: no dead letter written for %s: %s", self._participant, refusal.reason, error)
            # A letter that is refused once is always refused. Over MQTT the receipt makes the forwarder write
            # it. Else the event stays in its queue, whose limit of receives moves it among the dead letters.
            if not (is_final and self._transport.keeps_refused):
                if delivery is None:
                    self._transport.release(message, _BUSY_S)
                return False
            refused = refusal.reason
        if delivery:
            self._reply(delivery.event, Status.FAILED, failure=Failure(refusal.reason, refusal.detail))
            delivery.outcome, delivery.reason = Outcome.DEAD_LETTERED, refusal.reason
            self.settle([delivery], refused=refused)
        else:
            self._transport.acknowledge([message], refused=refused)
        sender, source, id = event.key if event else ("", "", "")
        self._on_notice(DeadLettered(sender, source, id, refusal.reason, refusal.detail))
        return True


_WORD: Final = re.compile(r"[\w.-]{1,64}")


def _place(error: BaseException | str) -> str:
    """Return where it was raised, for the operators of its program; '' where nothing was."""
    frames = [] if isinstance(error, str | UnhandleableError) else extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""


def _failure(error: BaseException | str) -> Failure:
    """Return the failure; its kind is a word, as the reason of a dead letter is (`edge.dispatch` as well)."""
    if isinstance(error, UnhandleableError):
        found = Failure(str(error.reason), str(error.detail))
    else:
        found = Failure.of(error)
    return found if _WORD.fullmatch(found.kind) else Failure(Reason.REFUSED, f"{found.kind!r}: {found.text}")


def _check_open(deliveries: Sequence[Delivery]) -> None:
    for each in deliveries:
        if each.is_settled:
            raise AlreadySettledError(*each.event.claim)
