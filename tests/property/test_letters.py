"""Whatever lies in a queue can be shown, and what is shown cannot steer a terminal."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eventplane.dead_letter import DEAD_LETTER_TYPE
from operations import text
from operations.dead_letters_command import letter_document, letter_text
from operations.letters import Letter, read_letter
from tests.property.strategies import json_values

JSON = json_values(st.text())
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        name: JSON | st.sampled_from(["", "Zm9v", "%", "1", 1])
        for name in (
            "reason", "detail", "channel", "route", "attempt", "contract_version", "original_base64",
            "original_bytes",
        )
    },
)  # fmt: skip
LETTERS = (MEMBERS | JSON).map(
    lambda data: json.dumps(
        {"specversion": "1.0", "id": "1", "source": "/s", "type": DEAD_LETTER_TYPE, "data": data}
    )
)
BODIES = st.text(min_size=1) | JSON.map(json.dumps) | LETTERS


def letter_of(body: str) -> Letter:
    attributes = {"SentTimestamp": "1767225600000", "ApproximateReceiveCount": "6"}
    message: dict[str, Any] = {"MessageId": "m", "Body": body, "Attributes": attributes}
    return read_letter(message, "queue", None)


@given(BODIES)
def test_every_message_is_a_letter_that_can_be_shown(body: str) -> None:
    letter = letter_of(body)

    assert all(each.isprintable() for each in letter_text(letter).replace("\n", ""))
    assert json.loads(json.dumps(letter_document(letter)))["id"] == "m"
    assert not letter.is_called("no such id")


@given(st.binary())
def test_every_original_can_be_shown(original: bytes) -> None:
    assert all(each.isprintable() for each in text.shown(original).replace("\n", ""))


@given(st.lists(st.text(), min_size=1, max_size=3))
def test_a_table_has_one_line_for_a_row(row: list[str]) -> None:
    assert text.table(["HEAD"] * len(row), [row]).count("\n") == 1
