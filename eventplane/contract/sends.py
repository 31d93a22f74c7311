"""What a participant declares that it sends: types, and families of types as `org.example.*`."""

from __future__ import annotations

from eventplane.contract.reader import Section


def read_sends(section: Section) -> tuple[str, ...] | None:
    """The types under `sends`, sorted; None when the participant does not say."""
    listed = section.raw("sends")
    if listed is None:
        return None
    if not isinstance(listed, list):
        section.fault("sends", "it is not a list", "list the types of its events, or `[]` for none")
        return None
    for at, each in enumerate(listed):
        if not isinstance(each, str) or not each:
            section.fault(f"sends[{at}]", f"{each!r} is not a type", "name the `type` of events")
        elif "*" in each.removesuffix(".*"):
            section.fault(f"sends[{at}]", f"{each!r}: `*` stands in it", "let `.*` stand at the end only")
    return tuple(sorted({each for each in listed if isinstance(each, str)}))
