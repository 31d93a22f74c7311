"""The input: homes and quotas, the simulator, and the real data sets on tiny files of our own."""

from __future__ import annotations

import lzma
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from eventplane.contract import Contract
from lambdas.router.payload import PayloadCheck
from local.input import (
    InputBoundError,
    InputFileError,
    InputMissingError,
    InputRowError,
    open_input,
    read_bound,
)
from local.input.datasets import ALARM_TYPE, READING_TYPE, opensmarthome_homes, tihm_homes
from local.input.model import HomeInput
from local.input.selection import choose_homes, fair_quotas


def home(name: str) -> HomeInput:
    return HomeInput(name, (), 0, 0, lambda: iter(()))


def test_homes_are_taken_from_every_source_in_turn() -> None:
    patients, rooms = [home(name) for name in "abcd"], [home(name) for name in "xy"]

    assert [each.name for each in choose_homes([patients, rooms], 5)] == ["a", "x", "b", "y", "c"]
    assert len(choose_homes([patients, rooms], None)) == 6


@pytest.mark.parametrize(
    ("sizes", "total", "quotas"),
    [
        ([10, 10], 10, [5, 5]),
        ([2, 10, 10], 12, [2, 5, 5]),
        ([10, 1, 4], 9, [4, 1, 4]),
        ([3, 3], 100, [3, 3]),
        ([10, 10, 10], 10, [3, 3, 4]),
        ([None, None], 7, [3, 4]),
        ([3, 8], None, [3, 8]),
        ([10, 10, 10], 2, [0, 1, 1]),
    ],
)
def test_every_home_gets_its_share_and_small_homes_leave_theirs_to_the_rest(
    sizes: list[int | None], total: int | None, quotas: list[int]
) -> None:
    assert fair_quotas(sizes, total) == quotas


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "many", "٣"])
def test_another_bound_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(InputBoundError, match=r"EVENTS=.*give a number from 1, or all"):
        read_bound("EVENTS", text)


@pytest.mark.parametrize(("homes", "events", "name"), [(None, 10, "HOMES"), (3, None, "EVENTS")])
def test_the_simulator_cannot_play_all(homes: int | None, events: int | None, name: str) -> None:
    with pytest.raises(InputBoundError, match=f"{name}=all: the simulator never ends"):
        open_input(None, homes, events)


def texts(*, seed: int, homes: int = 3, events: int = 600) -> list[str]:
    return [each.event.json for each in open_input(homes=homes, events=events, seed=seed)]


def test_the_same_seed_gives_the_same_events() -> None:
    assert texts(seed=7) == texts(seed=7)


def test_by_default_five_homes_play_2000_events_in_time_order() -> None:
    chosen = open_input()
    events = list(chosen)

    assert len(events) == chosen.total == 2_000
    assert len({each.home for each in events}) == len(chosen.homes) == 5
    assert all(before.at <= after.at for before, after in pairwise(events))
    assert len({each.event.key for each in events}) == 2_000


def test_every_service_and_every_simulated_type_has_its_part(contract: Contract) -> None:
    events = list(open_input())
    types = Counter(each.event.type for each in events)

    assert {each.service for each in events} == {
        "activity-service", "climate-service", "health-service", "voice-service"
    }  # fmt: skip
    assert types.keys() < contract.event_types.keys()
    assert types["org.eventplane.alarm.keyword.v1"] == 2
    assert len(types) == 6


@pytest.mark.source("P11")
def test_two_versions_of_readings_are_in_use_and_all_payloads_are_right(contract: Contract) -> None:
    check = PayloadCheck(contract).of_message()
    versions: dict[str, set[str]] = {}
    for each in open_input(homes=2, events=1_000):
        assert check(each.event) is None
        if each.event.type == "org.eventplane.health.reading.v1":
            versions.setdefault(each.home, set()).add(str(each.event.attributes.get("dataschema", "")))
    first, newest = contract.event_types["org.eventplane.health.reading.v1"].schemas
    assert first.endswith("reading.v1.json")
    assert versions == {"home-01": {""}, "home-02": {newest}}


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


def flat(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.csv.xz").write_bytes(lzma.compress(text.encode()))
    return folder


def test_every_patient_is_a_home_even_one_with_alerts_only(tmp_path: Path) -> None:
    homes = tihm_homes(tihm(tmp_path))

    assert [(each.name, each.size, each.urgent) for each in homes] == [
        ("tihm-aaaaa", 3, 1),
        ("tihm-ccccc", 1, 1),
        ("tihm-bbbbb", 1, 0),
    ]


def test_rows_out_of_order_are_played_in_order_with_alerts_among_readings(tmp_path: Path) -> None:
    events = list(tihm_homes(tihm(tmp_path))[0].events())

    assert [each.event.attributes["time"] for each in events] == [
        "2019-04-01T08:00:00Z",
        "2019-04-01T12:00:00Z",
        "2019-04-02T08:00:00Z",
    ]
    assert [each.event.type for each in events] == [READING_TYPE, ALARM_TYPE, READING_TYPE]


def test_a_reading_keeps_its_value_unit_and_row(tmp_path: Path) -> None:
    [event] = tihm_homes(tihm(tmp_path))[2].events()

    assert event.event.claim == ("/homes/tihm-bbbbb/health-service", "physiology-3")
    assert event.event.attributes["subject"] == "/body/temperature"
    assert event.event.data() == {"quantity": "body-temperature", "value": 36.072, "unit": "Cel"}


def test_every_room_is_a_home_whose_files_are_merged_in_time_order(tmp_path: Path) -> None:
    folder = flat(
        tmp_path,
        Kitchen_Humidity="1489023159\t47\n1489038096\t46\n",
        Kitchen_Temperature="1489027945\t17.32\n1489021955\t17.48\n",
        Room3_left_ThermostatTemperature="1489018431\t16.78\n",
    )
    kitchen, room3 = opensmarthome_homes(folder)

    assert [(each.event.id, each.event.data()["value"]) for each in kitchen.events()] == [
        ("kitchen-temperature-2", 17.48),
        ("kitchen-relative-humidity-1", 47),
        ("kitchen-temperature-1", 17.32),
        ("kitchen-relative-humidity-2", 46),
    ]
    [thermostat] = room3.events()
    assert (room3.name, room3.size) == ("flat-room3", 1)
    assert thermostat.event.attributes["subject"] == "/room3/left/thermostat-temperature"
    assert thermostat.event.attributes["time"] == "2017-03-09T00:13:51Z"


def test_both_sources_are_merged_in_time_order(tmp_path: Path) -> None:
    tihm(tmp_path / "tihm-physiology")
    flat(tmp_path / "opensmarthome-flat", Toilet_Brightness="1489018431\t3.5\n1489018531\t0\n")

    chosen = open_input(tmp_path, homes=2, events=4)

    assert [each.home for each in chosen] == ["flat-toilet", "flat-toilet", "tihm-aaaaa", "tihm-aaaaa"]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("aaaaa,2019-04-01 08:00:00,Heart rate,70", "4 fields instead of 5"),
        ("aaaaa,2019-04-31 08:00:00,Heart rate,70,beats/min", "'2019-04-31 08:00:00' is not a time"),
        ("aaaaa,2019-04-01 08:00:00,Heart rate,,beats/min", "'' is not a number"),
        ("aaaaa,2019-04-01 08:00:00,Heart rate,NaN,beats/min", "'NaN' is not a number"),
        ("aaaaa,2019-04-01 08:00:00,Heart rate,1e999,beats/min", "'1e999' is not a number"),
        ("aaaaa,2019-04-01 08:00:00,Heart rate,true,beats/min", "'true' is not a number"),
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


def test_a_wrong_unix_time_is_named_by_file_and_line(tmp_path: Path) -> None:
    folder = flat(tmp_path, Kitchen_Humidity="1489023159\t47\nnoon\t46\n")

    with pytest.raises(InputRowError, match=r"Kitchen_Humidity\.csv\.xz, line 2: 'noon' is not a time"):
        opensmarthome_homes(folder)


def test_another_header_is_refused(tmp_path: Path) -> None:
    folder = tihm(tmp_path, labels="who,when,what\n")

    with pytest.raises(InputRowError, match=r"Labels\.csv, line 1: the header is not 'patient_id,date,type'"):
        tihm_homes(folder)


def test_a_missing_folder_says_what_data_must_name(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError, match="DATA must name the folder of tihm-physiology or"):
        open_input(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (tihm(tmp_path) / "Labels.csv").unlink()

    with pytest.raises(InputMissingError, match=r"Labels\.csv is missing"):
        tihm_homes(tmp_path)


def test_an_empty_flat_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError, match="is missing"):
        opensmarthome_homes(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "Kitchen_Humidity.csv.xz").write_bytes(b"not xz")

    with pytest.raises(InputFileError, match="cannot be decoded"):
        opensmarthome_homes(tmp_path)


def test_a_file_of_an_unknown_quantity_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="Kitchen_Smell"):
        opensmarthome_homes(flat(tmp_path, Kitchen_Smell="1489023159\t47\n"))
