"""Names that CloudFormation and others have to agree on; it allows letters and digits only."""

from __future__ import annotations

from typing import Final

RETIRED_OUTPUT: Final = "RetiredParticipants"
"""The output that names the participants to which no deployed router writes any more, with commas."""


def pascal(name: str) -> str:
    """A participant's name as a construct id, which logical ids start with (`family-app`: `FamilyApp`)."""
    return "".join(word.capitalize() for word in name.split("-"))


def inbox_url_output(participant: str) -> str:
    """The stack output that holds the URL of a cloud service's inbox queue."""
    return f"{pascal(participant)}InboxUrl"


def outbox_url_output(participant: str) -> str:
    """The stack output that holds the URL of a cloud service's outbox queue."""
    return f"{pascal(participant)}OutboxUrl"
