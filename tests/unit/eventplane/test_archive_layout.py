"""The archive's layout changes only with its version, and only by growing."""

from __future__ import annotations

import pytest

from eventplane.archive_layout import _MEANINGS, FOLDERS, Folder

KNOWN = {
    (
        "tap",
        1,
    ): "accepted_at_ms archived_at_ms client_id topic message_id index event original_base64 refusal",
    (
        "ledger",
        1,
    ): "decided_at_ms entered_at_ms entered_by contract_version source id type priority client_id "
    "route destination outcome reason attempt message_id",
    (
        "tap",
        2,
    ): "accepted_at_ms archived_at_ms client_id topic message_id index event original_base64 refusal "
    "principal",
    (
        "tap",
        3,
    ): "accepted_at_ms archived_at_ms client_id topic message_id index event original_base64 refusal "
    "principal",
    (
        "ledger",
        2,
    ): "decided_at_ms entered_at_ms entered_by contract_version source id type priority client_id "
    "route destination outcome reason attempt message_id sender received_at_ms basis",
    ("handovers", 1): "decided_at_ms entered_at_ms channel contract_version source id type outcome reason "
    "status attempt message_id",
    ("handovers", 2): "decided_at_ms entered_at_ms channel contract_version source id type outcome reason "
    "status attempt message_id route",
    ("handovers", 3): "decided_at_ms entered_at_ms channel contract_version source id type outcome reason "
    "status attempt message_id route sender",
    ("quarantine", 1): "archived_at_ms message_id reason detail body",
    ("fleet", 1): "thing state since_ms",
    ("contracts", 1): "",
    ("audit/findings", 1): "kind hop device epoch sequence source id type route destination contract_version "
    "archive_file at_ms detail",
    ("audit/routes", 1): "route destination expected delivered dead_lettered expired dropped lost pending "
    "unrouted misrouted unexplained internal duplicated replayed events tap_copies",
    ("audit/routes", 2): "route destination expected delivered dead_lettered expired dropped lost pending "
    "unrouted misrouted unexplained internal duplicated replayed events tap_copies no_interest",
    ("audit/routes", 3): "route destination expected delivered dead_lettered expired dropped lost pending "
    "unrouted misrouted unexplained internal duplicated replayed events tap_copies no_interest unrecorded "
    "not_understood",
    ("audit/devices", 1): "client_id epoch first last events gaps tap_copies stated missing explained lost "
    "pending not_stored skew_ms",
    ("audit/devices", 2): "client_id epoch first last events gaps tap_copies stated missing explained lost "
    "pending not_stored skew_ms acknowledged_lost",
    ("audit/devices", 3): "client_id epoch first last events gaps tap_copies stated missing explained lost "
    "pending not_stored skew_ms acknowledged_lost unrecorded manifest numbering tap nothing awaiting "
    "best_effort coverage",
    ("audit/consumers", 1): "channel expected delivered dead_lettered pending lost duplicated",
    ("audit/consumers", 2): "channel expected delivered dead_lettered pending lost duplicated expired",
    (
        "audit/consumers",
        3,
    ): "channel expected delivered dead_lettered pending lost duplicated expired dropped",
    (
        "audit/consumers",
        4,
    ): "channel expected delivered dead_lettered pending lost duplicated expired dropped unrecorded "
    "not_understood",
    ("audit/quarantine", 1): "archive_file line reason text",
    ("audit/quarantine", 2): "archive_file line reason text archive",
    ("erasures", 1): "",
}
"""Every version of every folder that ever was, by its columns. Never edit one: add the next."""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda each: each.name)
def test_the_columns_of_a_version_stay(folder: Folder) -> None:
    assert " ".join(each.name for each in folder.columns) == KNOWN[folder.name, folder.version]


def test_a_later_version_only_adds_columns_at_the_end() -> None:
    for (name, version), columns in KNOWN.items():
        assert KNOWN.get((name, version + 1), columns).startswith(columns)


def test_every_column_says_what_it_means_and_nothing_else_does() -> None:
    used = {column.name for folder in FOLDERS for column in folder.compacted_columns or folder.columns}
    assert used == set(_MEANINGS)


def test_no_table_has_a_column_twice() -> None:
    for folder in FOLDERS:
        names = [*folder.partitions, *(each.name for each in folder.compacted_columns or folder.columns)]
        assert len(names) == len(set(names)), folder.name


def test_a_compaction_speaks_of_columns_that_there_are() -> None:
    for folder in FOLDERS:
        if folder.compaction:
            names = {each.name for each in folder.compacted_columns}
            assert {*folder.compaction.identity, *folder.compaction.order} <= names
