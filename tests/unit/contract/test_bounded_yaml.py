"""A few lines of YAML do not fill the memory, whatever they stand for."""

from pathlib import Path

import pytest
import yaml

from contract import bounded_yaml, load_contract
from contract.bounded_yaml import MAX_LEVELS, BoundedLoader
from contract.loader import EventFileError, load_event
from eventplane.contract import ContractError


def powers(levels: int) -> str:
    """Lines in which each list has ten times the one before."""
    first = "a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
    return "\n".join(
        [first, *(f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]" for at in range(1, levels))]
    )


def chain(levels: int) -> str:
    """Lines in which each list has the one before: none is deep by itself."""
    return "\n".join(["a0: &a0 []", *(f"a{at}: &a{at} [*a{at - 1}]" for at in range(1, levels))])


REFUSED = {
    "aliases of aliases": (powers(9), "more than 5,000 values"),
    "merged mappings": (
        "a: &a {x: 1, y: 2}\n" + "\n".join(f"b{at}: {{<<: [{', '.join(['*a'] * 90)}]}}" for at in range(20)),
        "values of it",
    ),
    "nested aliases": (chain(80), f"deeper than {MAX_LEVELS} levels; use fewer"),
    "nesting": ("[" * 100 + "]" * 100, f"deeper than {MAX_LEVELS} levels; make"),
    "an alias of itself": ("a: &a [*a]", r"the alias \*a is a part of itself"),
    "a key of itself": ("&a {? *a : 1}", r"the alias \*a is a part of itself"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_bomb_is_refused_by_line(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_yaml, "MAX_VALUES", 5_000)
    text, message = REFUSED[kind]
    for read, error, name in (
        (load_contract, ContractError, "c.yaml"),
        (load_event, EventFileError, "e.yaml"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(error, match=message) as caught:
            read(tmp_path / name)  # type: ignore[operator]
        assert "line" in str(caught.value)


@pytest.mark.parametrize("text", ["a: &a [1, 2]\nb: *a\nc: {<<: {d: *a}, e: 1}", chain(60), powers(5), ""])
def test_what_is_bounded_is_read_as_by_the_safe_loader(text: str) -> None:
    assert yaml.load(text, BoundedLoader) == yaml.safe_load(text)  # noqa: S506 - it is a safe loader
