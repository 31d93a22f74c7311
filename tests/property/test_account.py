"""One account of each event at each inbox, whatever is known of it and in whatever order."""

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from eventplane.account import EVERY_INBOX, Account, Fate, accounts, by_dead_letter, by_router
from eventplane.envelope import THE_PLANE, Sender
from eventplane.reasons import REDRIVE, Outcome
from tests.plane import shipped_contract

CONTRACT = shipped_contract()
INBOXES = st.sampled_from(["alarm-centre.inbox", "family-app.inbox", "carers.inbox"])
FACTS = st.builds(
    Account,
    INBOXES | st.just(EVERY_INBOX),
    st.sampled_from(Fate),
    st.sampled_from(["", "alarm-centre"]),
    st.sampled_from(["", "payload_invalid", REDRIVE]),
    st.none() | st.integers(0, 9),
)
NOT_PUT = {Fate.REFUSED, Fate.LOST, Fate.WAITING, Fate.UNKNOWN}


@given(due=st.sets(INBOXES), facts=st.lists(FACTS), order=st.randoms(use_true_random=False))
def test_no_event_vanishes(due: set[str], facts: list[Account], order: Random) -> None:
    found = {each.inbox: each for each in accounts(due, facts)}
    named = due | {each.inbox for each in facts}
    assert set(found) == (named - {EVERY_INBOX} or {EVERY_INBOX})
    order.shuffle(facts)
    assert {each.inbox: each for each in accounts(due, [*facts, *facts])} == found
    for inbox, account in found.items():
        about = [each for each in facts if each.inbox in (inbox, EVERY_INBOX)]
        # What no record says is unknown and names what is missing; what is lost is proven by a fact.
        assert account in [replace(each, inbox=inbox) for each in about] or (
            (not about) and (account.fate, bool(account.why)) == (Fate.UNKNOWN, True)
        )
        fates = {each.fate for each in about}
        assert account.fate not in NOT_PUT or not fates & {Fate.HANDLED, Fate.IN_INBOX}
        assert (account.fate is Fate.HANDLED) == (Fate.HANDLED in fates)
        assert account.fate is not Fate.LOST or Fate.REFUSED not in fates
        assert accounts([inbox] if inbox else [], about) == (account,)


@given(given_up_ms=st.integers(0, 9), again_ms=st.integers(0, 9), copy_ms=st.integers(0, 9))
def test_what_was_given_up_stays_so(given_up_ms: int, again_ms: int, copy_ms: int) -> None:
    put = Account("carers.inbox", Fate.IN_INBOX, at_ms=0)
    given_up = Account("carers.inbox", Fate.GIVEN_UP, "carers", "TimeoutError", given_up_ms)
    copy = replace(put, at_ms=copy_ms)
    assert accounts([], [put, given_up, copy]) == (given_up,)
    again = replace(put, why=REDRIVE, at_ms=again_ms)
    (account,) = accounts([], [put, given_up, copy, again])
    assert account.fate is (Fate.GIVEN_UP if given_up_ms >= again_ms else Fate.IN_INBOX)


@given(st.sampled_from(Outcome), st.sampled_from([None, "a", REDRIVE]), st.sampled_from([None, "operator"]))
def test_decisions_have_an_account(outcome: Outcome, reason: str | None, put_back_by: str | None) -> None:
    record = {
        "outcome": str(outcome), "reason": reason, "put_back_by": put_back_by, "decided_at_ms": 1,
        "destination": "carers.inbox", "route": "r", "entered_by": "device.outbox",
    }  # fmt: skip
    account = by_router(record)
    assert (account.inbox, account.at_ms, account.is_by_reader) == ("carers.inbox", 1, False)
    assert account.fate not in (Fate.LOST, Fate.UNKNOWN)
    assert reason is None or outcome is Outcome.DELIVERED or account.why == reason


SERVICES = [Sender(service=each) for each in ("", "carers", "downlink")]
WRITERS = st.sampled_from([THE_PLANE, Sender("home-1", "device"), *SERVICES])


@given(WRITERS, st.sampled_from([each.address for each in CONTRACT.channels] + ["gone.inbox", "replay", ""]))
def test_a_dead_letter_speaks_only_for_the_inboxes_of_who_wrote_it(writer: Sender, channel: str) -> None:
    account = by_dead_letter(CONTRACT, writer, channel, None, "r", 1)
    owner, _, box = channel.partition(".")
    if account is not None and box == "inbox":
        participant, reader = CONTRACT.participants[owner], "downlink" if owner == "device" else owner
        assert (account.fate, account.inbox, account.by) == (Fate.GIVEN_UP, channel, reader)
        assert participant.kind.is_on_device if writer.device else writer.service == reader
    elif account is not None:
        assert (account.fate, account.inbox) == (Fate.REFUSED, EVERY_INBOX)
        assert writer.device or writer == THE_PLANE or writer.service == owner
