"""Parts of all pages: one base template, one stylesheet, and a glossary.

It lies here because the catalogue is installed with the contract's reader; the pages of `lab/` use it too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from eventplane.account import Fate

MEANINGS: Final = {
    **{str(each): each.means for each in Fate},
    "archive": "Everything that IoT Core accepted and everything that the routers did, as objects in S3.",
    "at least once": "The sender repeats an event until its receiver acknowledges it; copies are possible.",
    "best effort": "The event is sent once; it may be lost while a network or a process is down.",
    "contract": "The file that names participants, event types and routes; a version of it is in force.",
    "dead letter": "An event about a message that could not be processed: its sender, place and reason.",
    "device reports": "Events that devices send about themselves, such as their start; nobody can predict "
    "how many.",
    "duplicate": "A copy of an event beyond the first. Consumers drop it by sender, source and id.",
    "ended otherwise": "Refused, expired or dropped: these deliveries are neither in an inbox nor lost.",
    "epoch": "The life of one spool. A device that loses its spool begins a new epoch, numbered from 1.",
    "event type": "The kind of an event, with a payload schema. Filters and rights refer to it.",
    "expected": "The deliveries that the contract's routes demand for the events that were accepted.",
    "explained": "Numbers that are missing because the device itself reported the event as discarded.",
    "forwarder": "The program on a device that stores events and sends them to IoT Core.",
    "hop": "One step of an event's way: device to home or cloud, IoT Core's rule, router, inbox to consumer.",
    "inbox": "The queue, or MQTT topic, from which a participant reads its events.",
    "ledger": "The routers' record of each decision and delivery, in the archive.",
    "manifest": "A device's own statement of the numbers that it sent, by which the audit finds what is "
    "missing.",
    "misrouted": "Delivered to an inbox to which no route of the contract leads.",
    "not known": "No record shows whether a reader took these: their inbox asks for no receipts, or evidence "
    "is missing.",
    "numbers not archived": "Numbers between a device's first and last that the archive lacks. Events that "
    "stay in the home have numbers too; the audit counts real losses as lost.",
    "outbox": "The queue, or MQTT topic, into which a participant sends its events.",
    "participant": "A service or device that sends or receives events, as the contract names it.",
    "quarantined": "A row of the archive that could not be read.",
    "receipt": "A reader's statement that it handled an event, or how the event ended there.",
    "route": "A rule of the contract: events that pass its filter go to its destination.",
    "router": "The function that decides where an event goes, once on the device and once in the cloud.",
    "rule": "The rule of IoT Core that passes what devices publish to the routers' queues.",
    "spool": "The device's store on disk for events that are not acknowledged by the cloud yet.",
    "taken": "The inbox's reader handled it; its receipt, or the answer of a webhook's endpoint, shows that.",
    "tap": "The copy of everything that IoT Core accepted, written to the archive before any router.",
    "to replay": "Events that a replay from the archive would deliver.",
    "unrecorded": "No statement is possible: the archive lacks the object that would say what happened.",
}


class Glossary:
    """The words that one page has used."""

    def __init__(self) -> None:
        self._used: dict[str, None] = {}

    def term(self, text: str, word: str = "") -> Markup | str:
        """Return `text` linked to the meaning of `word` (or of itself) where it is used first."""
        word = word or _known(text)
        if word not in MEANINGS or word in self._used:
            return text
        self._used[word] = None
        return Markup('<a class="term" href="#word-{}" title="{}">{}</a>').format(
            word.replace(" ", "-"), MEANINGS[word], text
        )

    def used(self) -> list[tuple[str, str]]:
        """Return the words that were used, in alphabetical order, with their meanings."""
        return [(word, MEANINGS[word]) for word in sorted(self._used)]


def _known(text: str) -> str:
    """Return the entry of `text`, which may be written with underscores or in the plural."""
    word = text.lower().replace("_", " ").replace("-", " ")
    singular = word.removesuffix("s")
    return (
        word
        if word in MEANINGS
        else {"duplicated": "duplicate", "dead lettered": "dead letter"}.get(word, singular)
    )


HERE: Final = Path(__file__).parent
STYLESHEET: Final = HERE / "style.css"


def environment(*folders: Path) -> Environment:
    """Return the templates of `folders` and the common ones, for one page.

    The glossary remembers which words a page has used: make another environment for another page.
    """
    made = Environment(
        loader=FileSystemLoader([*folders, HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    glossary = Glossary()
    made.globals |= {"glossary": glossary, "term": glossary.term, "stylesheet": text_of(STYLESHEET)}
    return made


def text_of(path: Path) -> Markup:
    """Return a stylesheet or script of ours, which a page embeds as it is."""
    return Markup(path.read_text(encoding="utf-8"))  # noqa: S704 - our own file


def embedded(value: object) -> Markup:
    """Return `value` as JSON that may be within a script element: no text of an event can end it."""
    text = json.dumps(value, ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))  # noqa: S704 - escaped here
