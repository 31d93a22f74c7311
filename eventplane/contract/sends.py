"""What a participant declares that it sends, or asks: types, and families of types as `org.example.*`."""

from __future__ import annotations

from eventplane.contract.reader import Section


def read_sends(section: Section) -> tuple[str, ...] | None:
    """The types under `sends`, sorted; None when the participant does not say."""
    return _read_types("sends", section)


def read_asks(section: Section) -> tuple[str, ...]:
    """The types under `asks`, sorted; none when the participant does not say."""
    return _read_types("asks", section) or ()


def _read_types(name: str, section: Section) -> tuple[str, ...] | None:
    listed = section.raw(name)
    if listed is None:
        return None
    if not isinstance(listed, list):
        section.fault(name, "it is not a list", "list the types of its events, or `[]` for none")
        return None
    for at, each in enumerate(listed):
        if not isinstance(each, str) or not each:
            section.fault(f"{name}[{at}]", f"{each!r} is not a type", "name the `type` of events")
        elif "*" in each.removesuffix(".*"):
            section.fault(f"{name}[{at}]", f"{each!r}: `*` stands in it", "let `.*` stand at the end only")
    return tuple(sorted({each for each in listed if isinstance(each, str)}))
