"""docs/reference/client.md: its lists are complete. `tests/unit/test_docs_examples.py` runs its examples."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from eventplane_client import errors, notices
from eventplane_client.settings import PREFIX, ClientSettings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "client.md").read_text()


@pytest.mark.source("F5")
def test_every_error_and_notice_is_there() -> None:
    named = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type)
        and issubclass(value, errors.ClientError)
        and value is not errors.ClientError
    }
    rows = set(re.findall(r"^\| `(\w+Error)` \|", PAGE, re.MULTILINE))
    assert rows == {*named, "EnvelopeError"}
    assert all(f"`{each.__name__}`" in PAGE for each in get_args(notices.Notice))


def test_every_setting_is_there() -> None:
    fields = {PREFIX + each.upper() for each in ClientSettings.__dataclass_fields__}
    assert set(re.findall(rf"^\| `({PREFIX}\w+)` \|", PAGE, re.MULTILINE)) == fields


def test_the_example_is_short() -> None:
    lines = (ROOT / "examples" / "call_for_help.py").read_text().splitlines()
    assert len([each for each in lines if each.strip()]) <= 30
