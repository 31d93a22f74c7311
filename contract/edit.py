"""Add entries to a contract's YAML text. Comments, order and layout of everything else stay as they are."""

from __future__ import annotations

import io
import json
from typing import Any, Final

import yaml

from contract.bounded_yaml import BoundedLoader
from eventplane.errors import EventPlaneError

Path = tuple[str, ...]
"""Where a mapping or list is in the document: the keys that lead to it."""


class ContractEditError(EventPlaneError):
    """An entry cannot be inserted at `place` of the text; nothing has changed."""

    place: str
    entry: str
    message = (
        "{place}: its layout does not allow an insertion without changing more; add this by hand:\n{entry}"
    )


class _Dumper(yaml.SafeDumper):
    """The house's layout: lists are indented, and the innermost collections are on one line."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - PyYAML's
        super().increase_indent(flow, indentless=False)


_INDENT: Final = 2
_WIDTH: Final = 110


def add_entry(text: str, path: Path, key: str, value: Any) -> str:
    """Return `text` with `key: value` at the end of the mapping at `path`, which is made if it is missing.

    Raises `ContractEditError`.
    """
    expected = _content(text)
    below = expected
    for each in path:
        below[each] = below.get(each) or {}
        below = below[each]
    below[key] = value
    node = _node(text, path)
    if node is None and path:
        return add_entry(text, path[:-1], path[-1], {key: value})
    lines = _in_block(key, value)
    match node:
        case yaml.MappingNode(flow_style=True):
            new = _insert_in_flow(text, node, f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
        case yaml.MappingNode(value=[(first, _), *_]):
            new = _insert_lines(text, node, first.start_mark.column, lines)
        case yaml.ScalarNode(value="null" | "~"):
            braces = text[: node.start_mark.index] + "{}" + text[node.end_mark.index :]
            return add_entry(braces, path, key, value)
        case yaml.ScalarNode(value=""):  # a key without a value
            new = _insert_lines(text, node, _INDENT * len(path), lines)
        case _:
            new = text
    return _checked(new, expected, path, lines)


def append_item(text: str, path: Path, item: str) -> str:
    """Return `text` with `item` at the end of the list at `path`, which is made if it is missing.

    Raises `ContractEditError`.
    """
    node = _node(text, path)
    if node is None:
        return add_entry(text, path[:-1], path[-1], [item])
    expected = _content(text)
    below = expected
    for each in path:
        below = below[each]
    below.append(item)
    is_plain = _reads_as_itself(item) and not text.lstrip().startswith("{")
    written = item if is_plain else json.dumps(item, ensure_ascii=False)
    new = text
    match node:
        case yaml.SequenceNode(flow_style=True):
            new = _insert_in_flow(text, node, written)
        case yaml.SequenceNode(value=[*_, last]):
            line = text.rfind("\n", 0, last.start_mark.index) + 1
            new = _insert_lines(text, node, 0, text[line : last.start_mark.index] + written + "\n")
    return _checked(new, expected, path, f"- {item}\n")


def _reads_as_itself(item: str) -> bool:
    try:
        return bool(yaml.safe_load(f"[{item}]") == [item])
    except yaml.YAMLError:
        return False


def _in_block(key: str, value: Any) -> str:
    """Return `key: value` in lines; the innermost collections are on one line each."""
    representer = _Dumper(io.StringIO(), default_flow_style=None, sort_keys=False)
    node = representer.represent_data({key: value})
    if isinstance(node, yaml.CollectionNode):
        node.flow_style = False
    return yaml.serialize(node, Dumper=_Dumper, allow_unicode=True, width=_WIDTH)


def _content(text: str) -> Any:
    """Return the document in plain JSON types: parts that aliases share are apart."""
    document = yaml.load(text, BoundedLoader)  # noqa: S506 - it is a safe loader
    return json.loads(json.dumps(document, default=str))


def _checked(new: str, expected: Any, path: Path, entry: str) -> str:
    try:
        is_right = _content(new) == expected
    except yaml.YAMLError:
        is_right = False
    if not is_right:
        raise ContractEditError(".".join(path), entry)
    return new


def _node(text: str, path: Path) -> yaml.Node | None:
    node: yaml.Node | None = yaml.compose(text, Loader=BoundedLoader)
    for each in path:
        if not isinstance(node, yaml.MappingNode):
            return None
        node = next((value for key, value in node.value if key.value == each), None)
    return node


def _end(text: str, node: yaml.Node) -> int:
    """Return the index after the last character of a node's content, without what follows in its line."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        if isinstance(last, tuple):
            # An alias is the node that it names, which is further up.
            return max(_end(text, last[0]), _end(text, last[1]))
        return max(_end(text, last), node.start_mark.index)
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return len(text[: node.end_mark.index].rstrip())
    return int(node.end_mark.index)


def _insert_in_flow(text: str, node: yaml.CollectionNode, entry: str) -> str:
    if not node.value:
        at = node.end_mark.index - 1
        return text[:at] + entry + text[at:]
    last = node.value[-1]
    at = _end(text, last[1] if isinstance(last, tuple) else last)
    return f"{text[:at]}, {entry}{text[at:]}"


def _insert_lines(text: str, node: yaml.Node, column: int, lines: str) -> str:
    """Insert `lines`, indented to `column`, after `node` and the comments that belong to it."""
    at = _line_after(text, _end(text, node))
    while (line := text[at : _line_after(text, at)]).lstrip(" ").startswith("#"):
        if len(line) - len(line.lstrip(" ")) <= max(column, node.start_mark.column):
            break
        at += len(line)
    newline = "\r\n" if "\r\n" in text else "\n"
    new = "".join(f"{' ' * column}{each}{newline}" for each in lines.rstrip("\n").split("\n"))
    return text[:at] + ("" if text[:at].endswith("\n") or not at else newline) + new + text[at:]


def _line_after(text: str, index: int) -> int:
    found = text.find("\n", index)
    return len(text) if found < 0 else found + 1
