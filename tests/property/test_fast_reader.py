"""The fast reader against the strict one: the same event, or the same refusal with the same words."""

import json
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane import fast_reader, other_json
from eventplane.attributes import KNOWN
from eventplane.batch import unpack
from eventplane.envelope import Envelope, parse_event, parse_strictly
from eventplane.errors import EnvelopeError
from eventplane.limits import (
    MAX_EVENT_BYTES,
    MAX_REMEMBERED_NAMES,
    MAX_REMEMBERED_SHAPES,
    MAX_REMEMBERED_VALUES,
)
from lab.benchmarks import workload
from tests.fuzz.targets import learn_forms, outcome
from tests.property.strategies import EVENTS

Edits = list[tuple[float, int, str]]

READERS = ("standard library", "orjson")
CHARACTERS = [
    *('"', "\\", "\\u0041", "\\ud800", "\\ud83d\\ude00", "\\n", "\\u0000"),
    *("\x7f", "\x00", "\ufffe", "é"),
]
MARKS = ["{", "}", "[", "]", ":", ",", " ", "\n", "{}", "[]", "null", "true", "NaN", "-Infinity", "\ufeff"]
NUMBERS = ["1", "-0", "1.0", "1e5", "1e999", "-1E+400", "0.1e-999", "01", "9" * 20, "9" * 400, "9" * 1_001]
MEMBERS = ['"id":"2",', '"id" :"2",', '"i\\u0064":"2",', '"x":{"a":1,"a":2},', '"a":true,', '"A":"a",']
ODD = ['"time":"2026-02-29T00:00:00Z",', '"source":"a b",', '"data":null,', '"data_base64":"A",', '"":"",']
DEEP = ["[" * 64, "]" * 64, '{"a":' * 63, "}" * 63, "[" * 9_000, "x" * MAX_EVENT_BYTES]
PIECES = st.sampled_from([*CHARACTERS, *MARKS, *NUMBERS, *MEMBERS, *ODD, *DEEP])
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 6), PIECES | st.text(max_size=2)), max_size=3)
VALUES = [
    *("1", "0", "true", "false", "null", "[]", '["x"]', "{}", '{"a":1}', "1.5"),
    *('""', '"x"', '"\\u0001"', '"1.0"'),
]
GOOD = {
    "specversion": '"1.0"',
    "severitynumber": "9",
    "routerhops": "1",
    "deliveryguarantee": '"best_effort"',
    "datacontenttype": '"a/b"',
    "dataschema": '"urn:a"',
    "traceparent": f'"00-{1:032x}-{1:016x}-01"',
    **dict.fromkeys(("time", "expirytime", "recordedtime", "replayedtime"), '"2026-01-01T00:00:00.000Z"'),
}
FORMS = st.sampled_from(
    [
        {"separators": (",", ":"), "ensure_ascii": False},
        {"separators": (",", ":")},
        {},
        {"indent": 1},
        {"separators": (" , ", " : "), "sort_keys": True},
    ]
)


@pytest.fixture(params=READERS, autouse=True)
def _reader(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "orjson":
        orjson = pytest.importorskip("orjson")
        other_json.use_json(orjson.loads, orjson.dumps)
    yield
    other_json.use_standard_json()


@pytest.fixture(autouse=True)
def _forms(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let one event be enough for its form to be known, and know none at first."""
    learn_forms()  # which a process does once: not in the middle of a test
    monkeypatch.setattr(fast_reader, "EVENTS_BEFORE_FORM", 1)
    fast_reader._counts.clear()
    fast_reader._forms[0] = ()
    yield
    fast_reader._forms[0] = ()


def _given(item: object, _: object) -> object:
    return item


def edited(text: str, edits: Edits) -> str:
    for place, cut, piece in edits:
        at = int(place * len(text))
        text = text[:at] + piece + text[at + cut :]
    return text


@given(event=EVENTS, form=FORMS, edits=EDITS)
def test_both_readers_agree_on_whatever_comes(event: Envelope, form: dict[str, object], edits: Edits) -> None:
    text = edited(json.dumps(json.loads(event.json), **form), edits)  # type: ignore[arg-type]
    assert outcome(parse_event, text) == outcome(parse_strictly, text)
    raw = text.encode("utf-8", "surrogatepass")
    assert outcome(parse_event, raw) == outcome(parse_strictly, raw)


@given(events=st.lists(st.tuples(EVENTS, EDITS), min_size=1, max_size=4), form=FORMS)
def test_they_agree_on_batches(events: list[tuple[Envelope, Edits]], form: dict[str, object]) -> None:
    items = [edited(json.dumps(json.loads(each.json), **form), edits) for each, edits in events]  # type: ignore[arg-type]
    try:
        found = list(unpack(f"[{','.join(items)}]".encode("utf-8", "surrogatepass")))
    except EnvelopeError:
        return
    for item in found:
        text = item.json if isinstance(item, Envelope) else item[0].decode("utf-8", "surrogatepass")
        refusal = None if isinstance(item, Envelope) else (item[1].reason, item[1].detail)
        assert (refusal or outcome(partial(_given, item), text)) == outcome(parse_strictly, text)


@pytest.mark.parametrize("number", [0, 7])
def test_usual_events_are_read_fast(number: int) -> None:
    raw = workload.event(number)
    assert fast_reader.attributes_of(raw, raw.decode()) == parse_strictly(raw).attributes


def test_a_boolean_is_not_the_number_that_it_equals() -> None:
    for value, kind in (("1", int), ("true", bool), ("0", int), ("false", bool)):
        event = parse_event(f'{{"specversion":"1.0","id":"1","source":"/s","type":"t","a":{value}}}')
        assert type(event.attributes["a"]) is kind


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_they_agree_on_the_type_of_each_known_attribute(name: str) -> None:
    members = {"specversion": '"1.0"', "id": '"1"', "source": '"/s"', "type": '"t"'}
    # First with a good value, so that the names are known.
    for value in (GOOD.get(name, '"x"'), *VALUES):
        members[name] = value
        text = "{" + ",".join(f'"{member}":{written}' for member, written in members.items()) + "}"
        assert outcome(parse_event, text) == outcome(parse_strictly, text)


def test_the_reader_s_memory_is_bounded() -> None:
    for number in range(2 * MAX_REMEMBERED_VALUES + 1):
        parse_event(f'{{"specversion":"1.0","id":"1","source":"/s/{number}","type":"t","a{number}":""}}')
        parse_event(f'{{"specversion":"1.0","id":"1","source":"/{"s" * 200}{number}","type":"t"}}')
    many = "".join(f',"b{number}":1' for number in range(MAX_REMEMBERED_NAMES))
    parse_event(f'{{"specversion":"1.0","id":"1","source":"/s","type":"t"{many}}}')
    values, names = fast_reader._valid_values["source"], fast_reader._checks
    assert 0 < len(values) <= MAX_REMEMBERED_VALUES
    assert max(map(len, values)) < 200
    assert 0 < len(names) <= MAX_REMEMBERED_SHAPES
    assert max(map(len, names)) <= MAX_REMEMBERED_NAMES


def test_a_form_is_known_although_an_event_in_between_was_unusual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_reader, "EVENTS_BEFORE_FORM", 10)
    usual = '{"specversion":"1.0","id":"1","source":"/a","type":"t","time":"2026-01-01T00:00:00.000Z"}'
    parse_event(usual)
    for number in range(1, 21):
        # Valid and of the same attributes, but not in compact JSON.
        parse_event(usual.replace(",", ", ") if number == 10 else usual)
    assert [each.names[-1] for each in fast_reader._forms[0]] == ["time"]


def test_a_form_that_had_to_make_room_comes_back() -> None:
    def send(kind: str, events: int) -> None:
        for _ in range(events):
            parse_event(f'{{"specversion":"1.0","id":"1","source":"/a","type":"t","{kind}":"x"}}')

    send("usual", 2)
    for number in range(4):
        send(f"odd{number}", 2)
    assert "usual" not in {each.names[-1] for each in fast_reader._forms[0]}
    send("usual", 3)
    assert fast_reader._forms[0][0].names[-1] == "usual"


FORMED = st.fixed_dictionaries(
    {
        "specversion": st.just("1.0"),
        "id": st.text("ab~ !", min_size=1),
        "source": st.just("/a"),
        "type": st.just("t"),
    },
    optional={
        "time": st.just("2026-01-01T00:00:00.000Z"),
        "traceparent": st.just(f"00-{1:032x}-{1:016x}-01"),
        "severitynumber": st.integers(1, 24),
        "routerhops": st.integers(0, 9),
        "dataschema": st.just("urn:a"),
        "tracestate": st.just("a=b"),
        "x": st.integers(-(2**31), 2**31 - 1) | st.text("ab", min_size=1) | st.booleans(),
    },
)
DATA = (
    st.none()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([{"a": {"b": [1, 2.5]}}, [[]], [[[1]], {}], {"data": "x", "id": 2}])
)


@given(first=FORMED, second=FORMED, data=DATA, has_data=st.booleans(), edits=EDITS)
def test_both_readers_agree_on_events_of_a_known_form(
    first: dict[str, object],
    second: dict[str, object],
    data: object,
    has_data: bool,
    edits: list[tuple[float, int, str]],
) -> None:
    fast_reader._counts.clear()
    for event in (first, first, first | {"id": "other"}, first | second):
        text = json.dumps(event | ({"data": data} if has_data else {}), separators=(",", ":"))
        for each in (text, edited(text, edits), text[:-1], text + " ", text + text):
            assert outcome(parse_event, each) == outcome(parse_strictly, each)
    assert fast_reader._forms[0] or "x" in first


@pytest.mark.parametrize("data", ['"data":1', '"data":{"a":"\\ud83d\\ude00"}', '"data":{"a":[1.5]}', None])
def test_known_forms_are_read_at_once(data: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    members = ['"specversion":"1.0"', '"id":"1"', '"source":"/a"', '"type":"t"', '"severitynumber":9']
    text = "{" + ",".join([*members, '"x":-5', *([data] if data else [])]) + "}"
    plain = text.replace("\\", "x")
    for _ in range(2):
        parse_event(plain)
    assert "severitynumber" in fast_reader._forms[0][0].names
    monkeypatch.setattr(fast_reader, "checked", None)
    assert parse_event(plain) == parse_strictly(plain)
    assert parse_event(plain).attributes == parse_strictly(plain).attributes


def test_few_forms_are_known() -> None:
    for number in range(40):
        members = {f"x{number // 2}": 1} | json.loads(workload.event(0))
        parse_event(json.dumps(members, separators=(",", ":")))
    assert len(fast_reader._forms[0]) == 4


def test_a_thread_that_finds_no_idle_scanner_makes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class JustTaken(list[object]):
        """Another thread took the last one between a look and the `pop`."""

        def __len__(self) -> int:
            return 1

    monkeypatch.setattr(fast_reader, "_idle", JustTaken())
    event = workload.event(1)
    assert parse_event(event) == parse_strictly(event)
