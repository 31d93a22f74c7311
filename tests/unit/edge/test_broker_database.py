"""The broker comes up after every power cut, and what it lost is said."""

import os
from pathlib import Path
from struct import pack

import pytest

from edge.broker_database import find_damage, set_aside_if_torn
from edge.command_line import main
from edge.durable import MOST_KEPT


def chunk(kind: int, head: bytes, *texts: bytes) -> bytes:
    body = head + b"".join(texts)
    return pack(">II", kind, len(body)) + body


def message(number: int, payload: bytes) -> bytes:
    lengths = pack(">IHHHHHBB", len(payload), 1, 5, 0, 5, 1883, 1, 0)
    return chunk(2, pack("=Qq", number, 0) + lengths, b"voice", b"a/b/c", payload)


HEAD = b"\0\xb5\0mosquitto db" + pack(">II", 0, 6)
CHUNKS = [
    chunk(1, pack("=QBB6x", 9, 0, 8)),
    *(message(number, b"x" * 300) for number in range(8)),
    message(9, b""),
    chunk(6, pack(">qIHHHH4x", 0, 0, 7, 9, 1883, 0), b"forwarder"),
    chunk(3, pack(">QHHBBBB", 1, 1, 9, 1, 11, 0, 0), b"forwarder", b"\0"),
    chunk(5, pack(">IHHBB2x", 0, 9, 3, 1, 0), b"forwarder", b"a/#"),
    chunk(4, pack("=Q", 9)),
]
GOOD = HEAD + b"".join(CHUNKS)
# With a payload format indicator, a content type, and a subscription identifier.
PROPERTIES = (
    chunk(
        2,
        pack("=Qq", 10, 0) + pack(">IHHHHHBB", 1, 1, 5, 0, 5, 1883, 1, 0),
        b"voice",
        b"a/b/c",
        b"\0",
        b"\6\1\0\3\0\1j",
    ),
    chunk(3, pack(">QHHBBBB", 1, 1, 9, 1, 11, 0, 0), b"forwarder", b"\2\x0b\1"),
)
ENDS = {len(HEAD + b"".join(CHUNKS[:number])) for number in range(1, len(CHUNKS) + 1)}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "mosquitto.db"


def test_a_whole_database_and_what_cannot_be_read_are_left_to_the_broker(database: Path) -> None:
    earlier = HEAD[:-1] + b"\5" + CHUNKS[0] + chunk(6, pack(">qIHH", 0, 0, 7, 9), b"forwarder")
    for content in (GOOD, earlier, HEAD[:-1] + b"\7of a later version"):
        database.write_bytes(content)
        assert main(["broker-database", "--database", str(database)]) == os.EX_OK
        assert database.read_bytes() == content
    database.unlink()
    assert main(["broker-database", "--database", str(database)]) == os.EX_OK
    database.mkdir()
    assert main(["broker-database", "--database", str(database)]) == os.EX_IOERR


def test_every_cut_and_every_block_of_zeros_over_a_head_is_found(database: Path) -> None:
    cuts = (GOOD[:at] for at in range(len(GOOD)) if at not in ENDS)
    zeros = (GOOD[:at] + bytes(512) + GOOD[at + 512 :] for at in range(0, len(GOOD) - 512, 16))
    versions = (
        HEAD[:-4] + number.to_bytes(4, "big") + GOOD[len(HEAD) :] for number in (1, 4, 16, 6 << 8, 1 << 31)
    )
    for torn in (bytes(len(GOOD)), HEAD, *cuts, *zeros, *versions):
        database.write_bytes(torn)
        assert find_damage(database)


def test_a_configuration_that_the_broker_refuses_is_found(database: Path) -> None:
    # What a block of zeros left of a database that a broker without clients had written.
    database.write_bytes(HEAD + chunk(1, b"\2" + bytes(15)))
    assert find_damage(database)
    database.write_bytes(HEAD + CHUNKS[0])
    assert find_damage(database) == ""


def test_zeros_over_a_text_or_properties_are_found(database: Path) -> None:
    rich = GOOD + b"".join(PROPERTIES)
    database.write_bytes(rich)
    assert find_damage(database) == ""
    for text in (b"voice", b"a/b/c", b"forwarder", b"a/#", b"\1\0\3", b"\3\0\1j", b"\x0b\1"):
        at = rich.rindex(text)
        database.write_bytes(rich[:at] + bytes(len(text)) + rich[at + len(text) :])
        assert find_damage(database), text


def test_a_killed_broker_is_named(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped = GOOD.replace(CHUNKS[0], chunk(1, pack("=QBB6x", 9, 1, 8)))
    for content, is_named in ((stopped, False), (None, True), (GOOD, True), (stopped, False)):
        if content is not None:
            database.write_bytes(content)
        assert main(["broker-database", "--database", str(database)]) == os.EX_OK
        assert ("was killed or lost power" in capsys.readouterr().err) is is_named
        assert find_damage(database) == ""


def test_torn(database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 13):
        database.write_bytes(GOOD[:-number])
        assert main(["broker-database", "--database", str(database)]) == os.EX_OK
        assert f"kept as mosquitto.db.torn-{number}," in capsys.readouterr().err
        assert not database.exists()
    kept = {each.name: len(each.read_bytes()) for each in database.parent.iterdir()}
    assert kept == {f"mosquitto.db.torn-{number}": len(GOOD) - number for number in range(13 - MOST_KEPT, 13)}
    monkeypatch.setattr("edge.broker_database.KEPT_BYTES", 2 * len(GOOD))
    database.write_bytes(GOOD[:-1])
    assert "13," in set_aside_if_torn(database)
    assert len(list(database.parent.iterdir())) == 2
