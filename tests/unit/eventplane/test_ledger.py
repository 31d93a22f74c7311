"""Messages of the ledger's queue: they hold every line and contract, within their bounds."""

import base64
import gzip
import json
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.ledger import LedgerMessageError, ledger_texts, parse_ledger_text

LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1, max_size=60))
CONTRACTS = st.dictionaries(st.text("0123456789abcdef", min_size=1, max_size=4), st.binary(max_size=40))
MOST_BYTES, MOST_CHARACTERS = 300, 100


@given(LINES, CONTRACTS)
def test_messages_keep_within_the_bounds(lines: list[str], contracts: dict[str, bytes]) -> None:
    with (
        patch("eventplane.ledger.MAX_SQS_BYTES", MOST_BYTES),
        patch("eventplane.ledger.MAX_LEDGER_CHARACTERS", MOST_CHARACTERS),
    ):
        written = ledger_texts(lines, contracts)
    assert [parse_ledger_text(text) for text, _ in written] == [held for _, held in written]
    assert [line for _, held in written for line in held.lines] == lines
    # No contract comes later than a line that names it.
    assert [held.contracts for _, held in written] == [contracts, *[{}] * (len(written) - 1)]
    for text, held in written:
        is_indivisible = len(held.lines) < 2 and not (held.lines and held.contracts)
        assert is_indivisible or (len(text) <= MOST_BYTES and sum(map(len, held.lines)) <= MOST_CHARACTERS)


def test_lines_that_fit_are_one_message() -> None:
    assert len(ledger_texts(["{}"] * 1_000, {"v": b"{}"})) == 1


[(TEXT, _)] = ledger_texts(["{}"], {"v": b"{}"})
GOOD = json.loads(TEXT)
NO_TEXT = base64.b64encode(gzip.compress(b"\xff")).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        *(
            json.dumps(GOOD | wrong)
            for wrong in (
                {"format": 2},
                {"lines": "e!A=="},
                {"lines": "bm8="},
                {"lines": GOOD["lines"][:24]},
                {"lines": NO_TEXT},
                {"lines": None},
                {"contracts": []},
                {"contracts": {"v": 7}},
            )
        ),
    ],
)
def test_a_malformed_message_is_refused(text: str) -> None:
    assert parse_ledger_text(TEXT).lines == ["{}"]
    with pytest.raises(LedgerMessageError):
        parse_ledger_text(text)
