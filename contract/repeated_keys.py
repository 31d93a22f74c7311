"""Equal keys in one YAML mapping: YAML readers keep the last and lose the others in silence."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from eventplane.contract import Problem


def repeated_keys(root: yaml.Node) -> Iterator[Problem]:
    """A problem for each key under `root` that stands in its mapping already."""
    waiting = [("", root)]
    seen: set[int] = set()
    while waiting:
        path, node = waiting.pop()
        # An alias is the node itself once more, and could even contain itself.
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield from _repeated_in(node, path)
            waiting += [(_join(path, key.value), value) for key, value in reversed(node.value)]
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(f"{path}[{at}]", value) for at, value in reversed(list(enumerate(node.value)))]


def _repeated_in(mapping: yaml.MappingNode, path: str) -> Iterator[Problem]:
    first: dict[str, yaml.ScalarNode] = {}
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        earlier = first.setdefault(key.value, key)
        if earlier is not key:
            lines = f"line {earlier.start_mark.line + 1} and line {key.start_mark.line + 1}"
            yield Problem(
                _join(path, key.value),
                f"the name stands twice, in {lines}",
                "rename or remove one of the two",
            )


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)
