"""Each part is described once, in its folder and in `parts`."""

import re
from pathlib import Path

import pytest

from parts import PARTS, has

ROOT = Path(__file__).parents[2] / "parts"


def test_each_folder_is_a_part() -> None:
    assert {each.parent.name for each in ROOT.glob("*/__init__.py")} <= PARTS.keys()


@pytest.mark.parametrize("readme", sorted(ROOT.glob("*/README.md")), ids=lambda each: each.parent.name)
def test_a_part_has_a_short_readme(readme: Path) -> None:
    text = readme.read_text()
    assert len(text.splitlines()) <= 30
    assert "**For whom**" in text
    assert "**Without it**" in text
    links = re.findall(r"\]\(([^)#:]+)", text)
    assert [each for each in links if not (readme.parent / each).exists()] == []
    assert 0 < len(re.findall(r"(?m)^\d\. ", text)) <= 5


def test_a_part_that_is_not_here_has_no_module() -> None:
    assert has("webhooks", "stack")
    assert not has("webhooks", "nothing")
    assert not has("nothing", "stack")
