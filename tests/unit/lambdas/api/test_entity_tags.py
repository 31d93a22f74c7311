"""Which entities the conditions of HTTP name."""

from __future__ import annotations

import pytest

from lambdas.api.http import if_match_names, if_none_match_names, tag_of

TAG = tag_of(b"content")


@pytest.mark.parametrize(
    ("condition", "strongly", "weakly"),
    [
        (TAG, True, True),
        (f'"other" , {TAG}', True, True),
        (f"W/{TAG}", False, True),
        (f'W/"other",W/{TAG}', False, True),
        ("*", True, True),
        ('"other"', False, False),
        (TAG.strip('"'), False, False),
        ("", False, False),
    ],
)
def test_if_match_compares_strongly_and_if_none_match_weakly(
    condition: str, strongly: bool, weakly: bool
) -> None:
    assert (if_match_names(condition, TAG), if_none_match_names(condition, TAG)) == (strongly, weakly)


def test_what_is_not_there_is_named_by_nothing() -> None:
    assert not any(
        names(each, None) for names in (if_match_names, if_none_match_names) for each in ("*", TAG)
    )


def test_other_content_has_another_tag() -> None:
    assert tag_of(b"other") != TAG == tag_of(b"content")
