"""The account of an event at the inboxes in its home, by what its device reports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Final

from eventplane.account import EVERY_INBOX, OF_ROUTER, Account, Fate, reader_of
from eventplane.contract import Contract, ContractError, Place, load_compiled
from eventplane.device_reports import DISCARDED, MANIFEST, REPORT_PREFIX, STARTED, forwarder_source
from eventplane.envelope import Envelope
from eventplane.errors import EnvelopeError
from eventplane.ledger import TAP
from eventplane.names import EPOCH, SEQUENCE
from eventplane.report_reader import MOST, DeviceReports, ManifestReport, Report, read_reports, within
from eventplane.router import Router
from eventplane.values import whole_number
from operations.archive import Days, Record, json_object
from operations.names import event_in_tap

_LOSSES_MS: Final = 120_000
"""How long after it gave something up a device reports it, milliseconds: a minute and one to spare."""


@dataclass(slots=True)
class Heard:
    """The reports of a device, and when it was `heard_ms` last, Unix milliseconds (0: never).

    The objects `unread` may have more of them.
    """

    read: DeviceReports = field(default_factory=DeviceReports)
    heard_ms: int = 0
    unread: tuple[str, ...] = ()


def homes_of(devices: Collection[str], days: Days, contract: Contract) -> dict[str, Heard]:
    """Read once what each of `devices` reported in these `days`."""
    homes, reports = {each: Heard() for each in devices}, dict[str, list[Report]]()

    def wanted(line: bytes) -> Record | None:
        record = json_object(line) if REPORT_PREFIX.encode() in line else None
        return record if record is not None and record["client_id"] in homes else None

    for each in days.records(TAP, wanted, frozenset(homes)) if homes else ():
        try:
            event = event_in_tap(each)
        except EnvelopeError:
            continue
        device, at_ms = each["client_id"], each["accepted_at_ms"]
        if event.source == forwarder_source(device):
            homes[device].heard_ms = max(at_ms, homes[device].heard_ms)
        if event.type in (MANIFEST, DISCARDED, STARTED):
            number = str(event.attributes.get(EPOCH)), _number_of(event)
            own = event.type, event.source, event.id, *number, event.json
            reports.setdefault(device, []).append(Report(device, True, "", at_ms, each["archive_file"], *own))
    unread = tuple(sorted(name for name in days.damaged if name.startswith(f"{TAP}/")))
    for home in homes.values():
        home.unread = unread
    for device, rows in reports.items():
        homes[device].read = read_reports(rows, [contract.device.outbox.address])
    return homes


def at_home(
    event: Envelope, device: str, home: Heard, contract: Contract, compiled: Callable[[str], bytes | None]
) -> Iterator[tuple[Account, str]]:
    """Yield the account of the `event` at each inbox of its home that was due it, and by which object.

    Times are at the latest.
    What was due says the contract of which its manifest has the version, if `compiled` returns that, else
    `contract`, and other inboxes are unknown. A client without our forwarder has no inboxes beside it.
    """
    epoch, number = event.attributes.get(EPOCH), _number_of(event)
    if number is None and not event.sender.service:
        return
    manifests = [each for each in home.read.manifests if each.epoch == each.report.epoch == epoch]
    version = next((each.contract for each in manifests if _covers(each, number or 0)), None)
    if version and version != contract.version:
        if held := archived_contract(version, compiled):
            contract = held
        else:
            why = f"the archive has no contract {version}, by which {device} decided"
            yield Account(EVERY_INBOX, Fate.UNKNOWN, why=why), ""
    for inbox in sorted({each.destination for each in Router(contract, Place.DEVICE).route(event)}):
        if inbox == contract.device.outbox.address:
            continue
        if number is None:
            yield Account(inbox, Fate.UNKNOWN, why="it has no number, so no manifest states its end"), ""
            continue
        for lost in home.read.home_discards:
            if (lost.epoch, lost.destination) == (epoch, inbox) and within(number, lost.span):
                fate = OF_ROUTER.get(lost.outcome, Fate.UNKNOWN)
                account = Account(inbox, fate, device, lost.reason, lost.report.accepted_at_ms)
                yield account, lost.report.file
                break
        else:
            yield _by_manifests(inbox, number, manifests, device, home, contract)


def _by_manifests(
    inbox: str, number: int, manifests: list[ManifestReport], device: str, home: Heard, contract: Contract
) -> tuple[Account, str]:
    """Return the account by the first manifest by which it has ended for good, or the last by which it waits.

    What was stored for the cloud and not for `inbox` is lost, as in the audit. What the device has given up
    it reports later than that it has ended.
    """
    reader, waits, why = reader_of(inbox), None, f"no manifest of {device} states its end yet"
    sound = sorted((each for each in manifests if not each.contradiction), key=attrgetter("sequence"))
    said = [(each, stated) for each in sound for stated in each.homes if stated.inbox == inbox]
    if not any(within(number, stated.span) for _, stated in said):
        for each in sound:
            if each.contract == contract.version and each.span and within(number, each.span):
                lost = f"{device} stored it, and not for {reader}"
                return Account(inbox, Fate.LOST, "", lost, each.report.accepted_at_ms), each.report.file
        said = []
    is_told = not (home.unread or any(each.type == DISCARDED for each in home.read.unsettled))
    ended: tuple[Account, str] | None = None
    for each, stated in said:
        has_ended, at_ms = stated.ended(number, each.sequence), each.report.accepted_at_ms
        if has_ended is False:
            account = Account(inbox, Fate.WAITING, device, f"{reader} has not taken it", at_ms)
            ended, waits = None, (account, each.report.file)
        elif has_ended and not ended:
            if not is_told or (home.heard_ms < at_ms + _LOSSES_MS and not each.is_final):
                waits, why = None, f"it has ended, and whether {device} gave it up is not reported yet"
            elif contract.channel(inbox).receipts:
                ended = Account(inbox, Fate.HANDLED, reader, at_ms=at_ms), each.report.file
            else:
                ended = Account(inbox, Fate.IN_INBOX, at_ms=at_ms), each.report.file
    if unsettled := len(home.read.unsettled):
        why += f"; {unsettled} reports of {device} cannot be read or contradict others"
    why += "".join(f"; {name} cannot be read to its end" for name in home.unread)
    return ended or waits or (Account(inbox, Fate.UNKNOWN, why=why), "")


def _covers(manifest: ManifestReport, number: int) -> bool:
    """Return whether the manifest states what was stored at `number`."""
    spans = [*(each.span for each in manifest.statements), *(each.span for each in manifest.homes)]
    return any(within(number, each) for each in spans)


def _number_of(event: Envelope) -> int | None:
    try:
        return whole_number(event.attributes.get(SEQUENCE), MOST)
    except ValueError:
        return None


def archived_contract(version: str, compiled: Callable[[str], bytes | None]) -> Contract | None:
    """Return the contract of a version, None where `compiled` has none or a damaged one."""
    found = compiled(version) if version.isalnum() else None
    try:
        return _contract(found) if found else None
    except ContractError:
        return None


# Many events have the same few contracts, and to read one takes as long as a hundred lines.
_contract = lru_cache(maxsize=16)(load_compiled)
