"""`eventplane contract prove`: every alarm has a reader, also of devices with an older image."""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from contract.loader import load_contract
from contract.proof import Proof, ProofOutcome, prove
from eventplane.contract import Contract, ContractError, load_compiled
from eventplane.contract.canonical import VERSION_LENGTH
from eventplane.device_reports import HEARTBEAT, forwarder_source
from eventplane.envelope import parse_event
from eventplane.errors import EnvelopeError
from eventplane.ledger import TAP
from operations import text
from operations.archive import Days, add_archive, archive_of, json_object, say_damaged
from operations.command import DONE, END_UNKNOWN, FAILED, ChoiceError, add_contract, contract_of, day, present
from operations.command_line import WRONG_WORDS

_VERSION: Final = re.compile(f"[0-9a-f]{{{VERSION_LENGTH}}}")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--image",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a contract in the image of devices, YAML or compiled; may be repeated",
    )
    parser.add_argument(
        "--date",
        type=day,
        metavar="DAY",
        help="also the contracts that devices reported on this UTC day, as their image's and in force",
    )
    add_archive(parser)
    add_contract(parser)
    parser.set_defaults(failed=WRONG_WORDS)  # 1 is a result
    parser.epilog = (
        "Exit status: 0 every alarm is proven, 1 not every one, 2 wrong usage, contract or archive, "
        "3 every one is, and what some devices reported could not be read."
    )


def run(options: argparse.Namespace) -> int:
    """Print a proof for each alarm, and return whether all are proven."""
    if options.archive and not options.date:
        raise ChoiceError(
            "which day of the archive? Add --date DAY, for the contracts that devices reported then"
        )
    contract = contract_of(options)
    images = {each.version: each for each in map(load_contract, options.image)}
    days = Days(archive_of(options), options.date, options.date) if options.date else None
    unknown = dict(_reported(days, {contract.version: contract, **images}, images)) if days else {}
    proofs = [*prove(contract, [*images.values()]), *map(_unknown, unknown, unknown.values())]
    rows = [[each.alarm, each.sender, each.image or "", text.word(each.outcome)] for each in proofs]
    missing = [each for each in proofs if each.outcome is not ProofOutcome.PROVEN]
    lines = [text.table(["ALARM", "SENT BY", "IMAGE", "EVERY EVENT HAS A READER"], rows)]
    for each in missing:
        where = f" of images with {each.image}" if each.image else ""
        lines.append(f"{each.alarm} from {each.sender}{where}: {each.reason}")
        lines += [f"  {json.dumps(each.event, ensure_ascii=False)}"] if each.event else []
    document = {"contract": contract.version, "proofs": [each.document() for each in proofs]}
    nothing = "no service sends alarms: none has an urgent outbox, or is known to send an urgent type"
    present(options, document, "\n".join(lines) if proofs else nothing)
    if missing:
        return FAILED
    return END_UNKNOWN if days and days.damaged else DONE


def _reported(
    days: Days, known: dict[str, Contract], images: dict[str, Contract]
) -> Iterator[tuple[str, int]]:
    """Add what devices reported to `images`; yield the versions that the archive lacks, with the devices."""
    devices = {
        (version, client)
        for found in days.rows(TAP, _versions)
        for client, *versions in [found]
        for version in versions
    }
    say_damaged(days)
    if not devices:
        raise ChoiceError(f"no device reported a contract on {days.first}; name another --date or --archive")
    for version, number in sorted(Counter(version for version, _ in devices).items()):
        if version in known:
            continue
        try:
            images[version] = load_compiled(days.contract(version) or b"", version)
        except ContractError:
            yield version, number


def _versions(line: bytes) -> tuple[str, ...] | None:
    """Return a device and the versions that its heartbeat names; None for another row of the tap."""
    if HEARTBEAT.encode() not in line:
        return None  # most lines: they need not be parsed
    row = json_object(line)
    if row is None or row["event"] is None:
        return None
    try:
        event = parse_event(row["event"])
    except EnvelopeError as error:
        raise ValueError(str(error)) from error
    if event.type != HEARTBEAT or event.source != forwarder_source(row["client_id"]):
        return None
    figures = event.data()["figures"]
    # An older forwarder has fewer figures, and what it does not know is empty.
    named = [figures[each] for each in ("image", "contract") if each in figures and figures[each] != ""]
    if not all(map(_VERSION.fullmatch, named)):
        raise ValueError(f"{named!r:.100} are no versions of contracts")
    return row["client_id"], *named


def _unknown(version: str, devices: int) -> Proof:
    reason = f"{devices} devices report it, and the archive lacks it; name its file by --image"
    return Proof("*", "*", version, ProofOutcome.UNDECIDED, None, reason)
