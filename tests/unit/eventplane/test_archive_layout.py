"""The archive's layout changes only with its version, and only by growing."""

import pytest

from eventplane.archive_layout import _MEANINGS, FOLDERS, Folder

KNOWN = {
    "tap": [
        "accepted_at_ms archived_at_ms client_id topic message_id index event original_base64 refusal",
        "principal",
        "",
        "digest",
        "expires_at_ms",
    ],
    "ledger": [
        "decided_at_ms entered_at_ms entered_by contract_version source id type priority client_id "
        "route destination outcome reason attempt message_id",
        "sender received_at_ms basis",
        "put_back_by",
        "digest",
        "dead_letter_reason",
    ],
    "handovers": [
        "decided_at_ms entered_at_ms channel contract_version source id type outcome reason status "
        "attempt message_id",
        "route",
        "sender",
    ],
    "quarantine": ["archived_at_ms message_id reason detail body"],
    "fleet": ["thing state since_ms"],
    "contracts": [""],
    "written": [""],
    "audit/findings": [
        "kind hop device epoch sequence source id type route destination contract_version "
        "archive_file at_ms detail",
    ],
    "audit/routes": [
        "route destination expected delivered dead_lettered expired dropped lost pending unrouted "
        "misrouted unexplained internal duplicated replayed events tap_copies",
        "no_interest",
        "unrecorded not_understood",
    ],
    "audit/devices": [
        "client_id epoch first last events gaps tap_copies stated missing explained lost pending "
        "not_stored skew_ms",
        "acknowledged_lost",
        "unrecorded manifest numbering tap nothing awaiting best_effort coverage",
        "home_stated home_receipt home_broker home_explained home_lost home_pending home_unattested "
        "home_unstated",
    ],
    "audit/consumers": [
        "channel expected delivered dead_lettered pending lost duplicated",
        "expired",
        "dropped",
        "unrecorded not_understood",
    ],
    "audit/deliveries": [
        "sender source id type device epoch sequence route destination contract_version hop verdict fate "
        "said_at_ms stored_at_ms accepted_at_ms routed_at_ms rung_at_ms taken_at_ms rests_on archive_file",
    ],
    "audit/quarantine": [
        "archive_file line reason text",
        "archive",
    ],
    "erasures": [""],
}
"""The columns that each version of a folder added to those before. Never edit one: add the next."""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda each: each.name)
def test_versions_keep_earlier_columns(folder: Folder) -> None:
    assert folder.version == len(KNOWN[folder.name])
    assert [each.name for each in folder.columns] == " ".join(KNOWN[folder.name]).split()
    compacted = [each.name for each in folder.compacted_columns or folder.columns]
    assert len({*folder.partitions, *compacted}) == len(folder.partitions) + len(compacted)
    if folder.compaction:
        assert {*folder.compaction.identity, *folder.compaction.order} <= {*compacted}


def test_every_column_has_a_meaning_and_no_other_word_has_one() -> None:
    used = {column.name for folder in FOLDERS for column in folder.compacted_columns or folder.columns}
    assert used == set(_MEANINGS)
