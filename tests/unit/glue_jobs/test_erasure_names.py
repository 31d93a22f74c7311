"""Names in texts: whole identifiers in every form are replaced, all else stays as it is."""

import base64
import bz2
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from random import Random
from urllib.parse import quote

import pytest

from glue_jobs.erasure.names import COMPRESSED, MAX_DEPTH, NESTED, NOT_TEXT, TOO_LARGE, Names

NAME = "home-17"
NAMES = Names((NAME,))

OTHERS = (
    *("home-170", "xhome-17", "home-1", "home-17-annex", "my-home-17", "home-17_2", "_home-17", "home-"),
    *("home-17:2", "north:home-17", "home-17::2", "a::home-17", "home-17.example.org", "home 17"),
)
"""Other identifiers, or none."""

AROUND = (
    *(("", ""), ("//", "/bell"), ("/devices/", "/router"), ("", ".1772366400000.3.disconnected")),
    *(("ask ", "."), ("", ": fell"), ('{"id":"', '"}'), ("電", "話"), ("(", ")"), ("a@", "?x=1")),
)
"""What a whole identifier may stand between."""


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": str.upper,
    "mixed case": lambda text: text.replace("h", "H"),
    "JSON escapes": lambda text: "".join(f"\\u{ord(each):04x}" for each in text),
    "JSON in a text": lambda text: json.dumps(json.dumps({"a/b": text})).replace("/", "\\/"),
    "percent": lambda text: "".join(f"%{each:02x}" for each in text.encode()),
    "percent twice": lambda text: quote(quote(text, safe="")).replace("-", "%2D"),
    "base64": lambda text: _base64(text.encode()),
    "base64 behind one byte": lambda text: _base64(b"~" + text.encode()),
    "base64 behind two bytes": lambda text: _base64(b"~~" + text.encode() + b"~"),
    "base64 without padding": lambda text: _base64(text.encode()).rstrip("="),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(b"\xff\xef>?~" + text.encode()).decode(),
    "base64 behind letters": lambda text: "abc" + _base64(text.encode()),
    "base64 in lines": lambda text: base64.encodebytes(
        bytes(53) + b"\n" + text.encode() + bytes(90)
    ).decode(),
    "base64 of escapes": lambda text: _base64("".join(f"\\u{ord(each):04x}" for each in text).encode()),
    "base64 twice": lambda text: _base64(_base64(text.encode()).encode()),
    "hex": lambda text: text.encode().hex(),
    "hex behind a digit": lambda text: "0" + text.encode().hex().upper(),
    "hex of base64": lambda text: _base64(text.encode()).encode().hex(),
    "gzip": lambda text: _base64(gzip.compress(text.encode(), mtime=0)),
    "gzip in hex": lambda text: gzip.compress(text.encode(), mtime=0).hex(),
    "zlib": lambda text: _base64(zlib.compress(text.encode())),
    "deflate": lambda text: _base64(zlib.compress(text.encode(), wbits=-15)),
    "gzip of base64 twice": lambda text: _base64(
        gzip.compress(_base64(_base64(text.encode()).encode()).encode())
    ),
    "UTF-16": lambda text: _base64(text.encode("utf-16")),
    "UTF-16, most significant byte first": lambda text: _base64(text.encode("utf-16-be")),
    "UTF-16 in a text": lambda text: "\0".join(text),
    "UTF-32 in hex": lambda text: text.encode("utf-32-le").hex(),
}


def generated(count: int, seed: int = 37) -> Iterator[tuple[str, bool]]:
    """Yield texts in all forms, and whether each names `NAME`."""
    random = Random(seed)
    for _ in range(count):
        is_named = random.random() < 0.5
        before, behind = random.choice(AROUND)
        word = NAME if is_named else random.choice(OTHERS)
        form = random.choice(list(FORMS.values()))
        noise = "".join(random.choices('abcXYZ019+/_-. \n"\\%é', k=random.randrange(30)))
        text = f"{noise} {form(f' {before}{word}{behind} ')} {noise[::-1]}"
        yield text, is_named


@pytest.mark.parametrize("form", FORMS)
def test_a_name_is_found_in_each_form_and_replaced_once(form: str) -> None:
    for around in AROUND:
        text = f"before {FORMS[form](NAME.join(around))} behind"
        redacted, may_remain = NAMES.redact(text)
        assert redacted != text
        assert may_remain == frozenset()
        assert redacted.startswith("before ")
        assert redacted.endswith(" behind")
        assert NAMES.redact(redacted) == (redacted, frozenset())


@pytest.mark.parametrize("form", FORMS)
def test_another_identifier_stays_as_it_is(form: str) -> None:
    for other in OTHERS:
        text = FORMS[form](f"//{other}/bell")
        assert NAMES.redact(text) == (text, frozenset())


def test_generated_texts_are_told_apart() -> None:
    wrong = [text for text, named in generated(5_000) if (NAMES.redact(text).text != text) != named]
    assert wrong == []


def test_different_texts_stay_different_and_json_stays_json() -> None:
    spelled = ("home-17", "HOME-17", "home%2D17", _base64(b"home-17"), _base64(b"HOME-17"))
    assert len({NAMES.redact(each).text for each in spelled}) == len(spelled)
    events = ['{"id":"home-17.1","n":[1.0,2]}', r'{"id":"\u0068ome-17.1","n":[1.0,2]}']
    assert len({NAMES.redact(each).text for each in events}) == 1
    assert json.loads(NAMES.redact(events[0]).text)["n"] == [1.0, 2]


NUMBER_NAME = "123456789012345"


def _packed(members: object) -> str:
    return _base64(json.dumps(members).encode())


@pytest.mark.parametrize(
    "kept",
    [
        '{"n":123456789012345,"l":[123456789012345, -123456789012345.5],"o":{"n": 123456789012345}}',
        '{"devicesequence":"123456789012345","orderin":"a/low/12345678/123456789012345 b/low/12345678/1"}',
        '{"type":"org.eventplane.device.acknowledged.v1","data":{"version":"123456789012345"}}',
        json.dumps({"event": json.dumps({"data": json.dumps({"n": [123456789012345]}), "é": "\n"})}),
        json.dumps({"event": json.dumps({"data": {"n": [123456789012345]}})})[:-6],
        json.dumps({"data_base64": _packed({"n": 123456789012345})}),
        '{"a":1,"a":123456789012345}\n{"b":123456789012345}',
        "[123456789012345, 5]",
    ],
)
def test_a_number_of_json_is_kept(kept: str) -> None:
    names = Names((NUMBER_NAME,))
    assert names.redact(kept).text == kept
    # A text beside it is replaced, and nothing else.
    for more in ("123456789012345", "imei 123456789012345", _packed("123456789012345")):
        text = f'{{"s":{json.dumps(more)},"x":{kept}' if kept[0] == "[" else f'{{"s":"{more}",{kept[1:]}'
        redacted = names.redact(text).text
        assert NUMBER_NAME not in redacted.partition('",')[0]
        assert redacted.partition('",')[2] == text.partition('",')[2]


@pytest.mark.parametrize(
    "text",
    [
        "123456789012345",
        "[123456789012345] fell",
        "imei=123456789012345, seen",
        '{"123456789012345":0}',
        '{"serial":"123456789012345"}',
        '{"version":"123456789012345"}',
        '{"sequence":"imei/123456789012345"}',
        '{"data":{"sequence":"123456789012345"}}',
        json.dumps({"note": json.dumps({"123456789012345": "123456789012345"})}),
        json.dumps({"data_base64": _packed({"serial": "123456789012345"})}),
        "{123456789012345}",
    ],
)
def test_a_text_that_is_a_number_is_replaced(text: str) -> None:
    names = Names((NUMBER_NAME,))
    redacted = names.redact(text).text
    assert NUMBER_NAME not in redacted
    assert names.redact(redacted) == (redacted, frozenset())


@pytest.mark.parametrize(
    "name", ["true", "null", 'a"b.c*d', "dom\\bob", "x+y(z", "caf%C3%A9", "josé", "jose\u0301"]
)
def test_a_name_of_any_characters_is_found_and_the_rest_is_kept(name: str) -> None:
    text = json.dumps({"a": f"//{name}/bell", name: [True, None], "b": json.dumps({"c": name})})
    for each in (text, text.replace("é", "É"), json.dumps(json.loads(text), ensure_ascii=False)):
        redacted = json.loads(Names((name,)).redact(each).text)
        assert [each.startswith("+erased-") for each in redacted] == [False, True, False]
        assert [True, None] in redacted.values()
        assert name not in str(redacted.values())


@pytest.mark.parametrize("spelled", ["josé", "jose\u0301", "JOSÉ", "JOSE\u0301", "jos%C3%A9", "jos\\u00e9"])
@pytest.mark.parametrize("name", ["josé", "jose\u0301", "jos%c3%a9"])
def test_accents_are_found_composed_decomposed_and_encoded(name: str, spelled: str) -> None:
    assert Names((name,)).redact(f"//{spelled}/ jose").text.endswith("/ jose")
    assert Names((name,)).redact(spelled).text.startswith("+erased-")
    assert Names(("jose",)).redact(spelled).text == spelled


def test_a_name_that_ends_with_a_separator_begins_longer_ones() -> None:
    names = Names(("urn:home-17:",))
    assert names.redact("urn:home-17:bell").text != "urn:home-17:bell"
    assert names.redact("urn:home-170:bell urn:home-17").text == "urn:home-170:bell urn:home-17"


def test_a_word_in_base64_stays_base64_and_no_form_hides_behind_another() -> None:
    text = f"devices/home-17/{_base64(b'home-17 and more')} {_base64(b'home-18')} home-18"
    first, second = Names((NAME,)), Names(("home-18",))
    assert base64.b64decode(first.redact(_base64(b"see home-17")).text, validate=True)
    redacted = first.redact(text).text
    assert first.redact(redacted).text == redacted
    assert second.redact(redacted).text == first.redact(second.redact(text).text).text


def _nested(times: int) -> str:
    text = NAME
    for _ in range(times):
        text = _base64(text.encode())
    return text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (_nested(MAX_DEPTH + 1), NESTED),
        ("".join(["\\" * 2**9, "u0068ome-17"]), NESTED),
        (_base64(bz2.compress(b"home-17")), COMPRESSED),
        (_base64(gzip.compress(b"home-17" * 99)[:-9]), COMPRESSED),
        (_base64(zlib.compress(Random(37).randbytes(300))[:-9]), COMPRESSED),
        (_base64(gzip.compress(Random(37).randbytes(64) + bytes(2**23) + b" home-17")), COMPRESSED),
        (_base64(Random(37).randbytes(300)), NOT_TEXT),
        (_base64(bytes(2**22 + 3)), TOO_LARGE),
    ],
    ids=["nested", "escaped", "bzip2", "cut", "cut zlib", "bomb", "binary", "large"],
)
def test_what_cannot_be_searched_is_reported(text: str, reason: str) -> None:
    redacted, may_remain = NAMES.redact(f"x {text} y")
    assert redacted == f"x {text} y"
    assert reason in may_remain


@pytest.mark.parametrize(
    "text",
    [Random(37).randbytes(32).hex(), Random(37).randbytes(64).hex(), _base64(b"a note " * 90), "-" * 999],
)
def test_digests_and_texts_are_not_reported(text: str) -> None:
    assert NAMES.redact(text).may_remain == frozenset()


def test_ids_are_not_reported() -> None:
    ids = [Random(seed).randbytes(16) for seed in range(5_000)]
    assert {each for id in ids for each in NAMES.redact(_base64(id)).may_remain} == set()
