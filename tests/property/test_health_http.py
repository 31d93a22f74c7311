"""Whatever a client sends to the health endpoint, it gets an answer of HTTP and harms nobody."""

from hypothesis import given
from hypothesis import strategies as st

from edge.health_server import MAX_HEAD_BYTES, HealthResponse, is_complete, read_path

PATH = "/-_.~%abc0189"
anything = st.one_of(
    st.binary(max_size=MAX_HEAD_BYTES + 100),
    st.builds(
        bytes.__add__,
        st.sampled_from(
            [b"GET /", b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\n", b"GET http://a/ HTTP/1.1\r\n"]
        ),
        st.binary(max_size=200).map(lambda tail: tail + b"\r\n\r\n"),
    ),
)


@given(anything)
def test_every_input_is_a_path_or_a_refusal(received: bytes) -> None:
    answer = read_path(received)
    if isinstance(answer, str):
        assert received.startswith(b"GET /")
        assert answer.startswith("/")
        assert "?" not in answer
        assert answer.isascii()
        assert answer.isprintable()
    else:
        assert answer.status in (400, 405)


@given(st.text(PATH, max_size=50), st.text(PATH, max_size=50), st.binary(max_size=300))
def test_a_request_is_understood_whatever_its_headers(path: str, query: str, headers: bytes) -> None:
    received = f"GET /{path}?{query} HTTP/1.1\r\n".encode() + headers + b"\r\n\r\n"
    assert is_complete(received)
    assert read_path(received) == f"/{path}"


@given(st.binary(max_size=MAX_HEAD_BYTES), st.integers(0, MAX_HEAD_BYTES))
def test_reading_in_pieces_comes_to_the_same_end(received: bytes, cut: int) -> None:
    """What was complete stays so, however much follows; no more than the limit is waited for."""
    assert not is_complete(received[:cut]) or is_complete(received)
    assert is_complete(received.ljust(MAX_HEAD_BYTES + 1))


@given(st.text(), st.sampled_from([200, 400, 404, 405, 503]))
def test_a_body_is_as_long_as_it_says(body: str, status: int) -> None:
    head, _, sent = HealthResponse(status, body).encode().partition(b"\r\n\r\n")
    assert f"Content-Length: {len(sent)}".encode() in head.split(b"\r\n")
    assert sent.decode("utf-8") == body.encode("utf-8", "replace").decode()
