"""The readers of the input: bounds, and the real data sets on tiny files of our own."""

import lzma
from pathlib import Path

import pytest

from lab.input import open_input, read_bound
from lab.input.datasets import ALARM_TYPE, READING_TYPE, opensmarthome_homes, tihm_homes
from lab.input.model import InputBoundError, InputFileError, InputMissingError, InputRowError


@pytest.mark.parametrize("text", ["", "0", "1.5", "٣"])
def test_another_bound_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(InputBoundError, match=r"EVENTS=.*give a number from 1, or all"):
        read_bound("EVENTS", text)


PHYSIOLOGY = """patient_id,date,device_type,value,unit
aaaaa,2019-04-02 08:00:00,Heart rate,70,beats/min
bbbbb,2019-04-01 09:00:00,Body Temperature,36.072,Cel
aaaaa,2019-04-01 08:00:00,Systolic blood pressure,131.5,mm[Hg]
"""
LABELS = """patient_id,date,type
aaaaa,2019-04-01 12:00:00,Blood pressure
ccccc,2019-04-03 12:00:00,Agitation
"""


def tihm(folder: Path, physiology: str = PHYSIOLOGY, labels: str = LABELS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    crlf = physiology.replace("\n", "\r\n").encode()
    (folder / "Physiology.csv.xz").write_bytes(lzma.compress(crlf))
    (folder / "Labels.csv").write_bytes(labels.replace("\n", "\r\n").encode())
    return folder


def test_every_patient_is_a_home(tmp_path: Path) -> None:
    homes = tihm_homes(tihm(tmp_path))
    assert [(each.name, each.size, each.urgent) for each in homes] == [
        ("tihm-aaaaa", 3, 1),
        ("tihm-ccccc", 1, 1),  # with an alert only
        ("tihm-bbbbb", 1, 0),
    ]
    assert [(each.event.attributes["time"], each.event.type) for each in homes[0].events()] == [
        ("2019-04-01T08:00:00Z", READING_TYPE),
        ("2019-04-01T12:00:00Z", ALARM_TYPE),
        ("2019-04-02T08:00:00Z", READING_TYPE),
    ]
    (reading,) = homes[2].events()
    assert reading.event.claim == ("/homes/tihm-bbbbb/health-service", "physiology-3")
    assert reading.event.attributes["subject"] == "/body/temperature"
    assert reading.event.data() == {"quantity": "body-temperature", "value": 36.072, "unit": "Cel"}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("aaaaa,2019-04-01 08:00:00,Heart rate,70", "4 fields instead of 5"),
        ("aaaaa,2019-04-31 08:00:00,Heart rate,70,beats/min", "'2019-04-31 08:00:00' is not a time"),
        ("aaaaa,2019-04-01 08:00:00,Heart rate,,beats/min", "'' is not a number"),
        ("aaaaa,2019-04-01 08:00:00,Heart rate,1e999,beats/min", "'1e999' is not a number"),
        ("aaaaa,2019-04-01 08:00:00,Crystal ball,70,beats/min", "device type 'Crystal ball' is not known"),
    ],
)
def test_a_wrong_row_is_named_by_file_and_line(tmp_path: Path, row: str, problem: str) -> None:
    folder = tihm(tmp_path, physiology=PHYSIOLOGY + row + "\n")

    with pytest.raises(InputRowError) as raised:
        tihm_homes(folder)

    assert raised.value.path == folder / "Physiology.csv.xz"
    assert raised.value.line == 5
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("files", "error", "problem"),
    [
        ({}, InputMissingError, "is missing"),
        ({"Kitchen_Humidity": b"not xz"}, InputFileError, "cannot be decoded"),
        ({"Kitchen_Smell": lzma.compress(b"1489023159\t47\n")}, InputFileError, "Kitchen_Smell"),
        (
            {"Kitchen_Humidity": lzma.compress(b"1489023159\t47\nnoon\t46\n")},
            InputRowError,
            r"Kitchen_Humidity\.csv\.xz, line 2: 'noon' is not a time",
        ),
    ],
    ids=["no file", "damaged", "unknown quantity", "wrong time"],
)
def test_a_flat_that_cannot_be_played_is_refused_by_file(
    tmp_path: Path, files: dict[str, bytes], error: type[Exception], problem: str
) -> None:
    for name, content in files.items():
        (tmp_path / f"{name}.csv.xz").write_bytes(content)
    with pytest.raises(error, match=problem):
        opensmarthome_homes(tmp_path)


def test_data_sets_that_are_incomplete_are_refused_by_file(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError, match="DATA must name the folder of tihm-physiology or"):
        open_input(tmp_path)
    folder = tihm(tmp_path, labels="who,when,what\n")
    with pytest.raises(InputRowError, match=r"Labels\.csv, line 1: the header is not 'patient_id,date,type'"):
        tihm_homes(folder)
    (folder / "Labels.csv").unlink()
    with pytest.raises(InputMissingError, match=r"Labels\.csv is missing"):
        tihm_homes(folder)
