"""YAML whose aliases and depth are bounded: a few lines of aliases may stand for more than memory holds."""

from __future__ import annotations

from typing import Any, Final

import yaml

from eventplane.limits import MAX_DEPTH

MAX_VALUES: Final = 500_000
"""Most values of a file with its aliases written out. Ours: ten times those of a large plane's contract."""

MAX_LEVELS: Final = MAX_DEPTH
"""Deepest nesting, levels, through aliases as well. Ours: as deep as an event's JSON may be."""


class BoundedLoader(yaml.SafeLoader):
    """Raises `yaml.YAMLError` with the line where the text exceeds a bound, or an alias names itself."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._level = 0
        self._measures: dict[int, tuple[int, int]] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose the next node, and count its values and levels; an alias counts like what it stands for."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            named = self.anchors.get(event.anchor)
            if named is not None and id(named) not in self._measures:
                raise _refused(event, f"the alias *{event.anchor} is a part of itself; write the value out")
        self._level += 1
        if self._level > MAX_LEVELS:
            raise _refused(event, f"it is nested deeper than {MAX_LEVELS} levels; make it flatter")
        node = super().compose_node(parent, index)
        self._level -= 1
        if node is not None and id(node) not in self._measures:
            parts = [self._measures[id(each)] for each in _parts(node)]
            values = 1 + sum(values for values, _ in parts)
            levels = 1 + max((levels for _, levels in parts), default=0)
            if values > MAX_VALUES:
                raise _refused(
                    event, f"aliases make more than {MAX_VALUES:,} values of it; use fewer of them"
                )
            if levels > MAX_LEVELS:
                raise _refused(event, f"aliases nest it deeper than {MAX_LEVELS} levels; use fewer of them")
            self._measures[id(node)] = values, levels
        return node


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _refused(event: Any, problem: str) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
