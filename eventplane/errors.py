"""The base of every named error of the plane."""

from __future__ import annotations

from typing import Any, ClassVar, dataclass_transform

from eventplane.reasons import Reason


@dataclass_transform(eq_default=False)
class EventPlaneError(Exception):
    """Base of all named errors. A message says what is wrong and what to do about it.

    A subclass declares its data as annotated fields, and `message`, a template over them:

        class TooManyRequestsError(EventPlaneError):
            most: int
            message = "{most} requests are open, the most allowed; wait for some of them"

    The constructor takes the fields in their order or by name; a template may use properties as well, and
    format specifications. A subclass that computes its text passes it to `super().__init__`.
    """

    message: ClassVar[str] = ""
    _fields: ClassVar[tuple[str, ...]] = ()
    _required: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = [name for name, kind in cls.__annotations__.items() if not _is_class(kind)]
        cls._fields = (*cls._fields, *(name for name in own if name not in cls._fields))
        cls._required = frozenset(name for name in cls._fields if not hasattr(cls, name))

    def __init__(self, *values: Any, **named: Any) -> None:
        if not self.message:
            super().__init__(*values)
            return
        fields = self.__dict__
        fields.update(zip(self._fields, values, strict=False))
        fields.update(named)
        known = len(values) <= len(self._fields) and named.keys() <= set(self._fields)
        if not known or not self._required <= fields.keys():
            raise TypeError(f"{type(self).__name__} takes {', '.join(self._fields)}")
        # As positions, so that the error can be pickled and copied.
        super().__init__(*([getattr(self, name) for name in self._fields] if named else values))

    def __str__(self) -> str:
        return self.message.format_map(_Members(self)) if self.message else super().__str__()


class _Members:
    """The members of an error by name, for its template."""

    def __init__(self, error: EventPlaneError) -> None:
        self._error = error

    def __getitem__(self, name: str) -> Any:
        return getattr(self._error, name)


def _is_class(kind: object) -> bool:
    # Annotations are texts: every module of ours postpones their evaluation.
    return str(kind).startswith(("ClassVar", "Final"))


class EnvelopeError(EventPlaneError):
    """A text is not a CloudEvent. `reason` is a stable word for a dead letter, `detail` is for people."""

    reason: Reason
    detail: str
    message = "{reason}: {detail}"
