"""Evidence for a roll-out's gates: what the archive has of a stage's devices and of the others, up to now.

An object of the archive does not change: each is read once, also by a command that stays for days.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from contract.loader import payload_check
from contract.rehearsal import PAYLOAD_REASONS, Rehearsal, Tapped, carried
from contract.rollout import ContractRollout, DevicesHeard, StageEvidence
from eventplane.contract import Contract, Priority, load_compiled
from eventplane.dead_letter import reason_in
from eventplane.device_reports import ACKNOWLEDGED, CONTRACT_KEYS, DISCARDED
from eventplane.downlink.device import AcknowledgementError, AckStatus, from_data
from eventplane.envelope import Envelope
from eventplane.ledger import CONTRACTS, LEDGER, TAP
from eventplane.names import FOLLOWED_CONTRACT
from eventplane.reasons import Outcome
from eventplane.values import timestamp_ms
from operations.archive import Archive, Days, body_of
from operations.rehearse_command import LATE_MS, decision_row, is_derived, tapped_row
from operations.reported import losses

BEFORE: Final = timedelta(hours=1)
"""How long before a roll-out its devices are looked at. Ours: twelve heartbeats."""

_ENDS: Final = (Outcome.DEAD_LETTERED, Outcome.EXPIRED, Outcome.DROPPED, Outcome.UNROUTED)


class EvidenceReader:
    """Reads the evidence of one stage of `rollout`, whose devices are the `members`, from an `archive`.

    `former` is the contract before with what participants subscribed, `new` the one that is rolled out.
    """

    def __init__(
        self,
        archive: Archive,
        rollout: ContractRollout,
        former: Contract,
        new: Contract,
        members: Collection[str],
    ) -> None:
        self.damaged: dict[str, str] = {}
        self._archive = archive
        self._rollout = rollout
        self._former = former
        self._members = members
        self._key = CONTRACT_KEYS + new.name
        self._rehearsal = Rehearsal(former, carried(former, new), payload_check)
        self._evidence = StageEvidence()
        self._read: set[str] = set()
        self._since_ms = rollout.began_ms - int(BEFORE.total_seconds()) * 1_000
        self._first_ms, self._last_ms = rollout.began_ms, rollout.stage_ms
        self._published = new
        self._versions = {rollout.version: True, former.version: False, rollout.former: False}
        self._late: dict[tuple[str, str], tuple[int, bool]] = {}

    def read(self, now: datetime) -> StageEvidence:
        """Return the evidence of all that the archive has now."""
        since = datetime.fromtimestamp(self._since_ms / 1_000, UTC)
        days = Days(self._archive, since.date(), now.date(), (since, now))
        # The ledger first: it says of an event in the tap that it was late or refused.
        for name in self._unread(days.names(LEDGER, (since, now))):
            for row in days.rows_of(name, decision_row):
                self._take_decision(row)
        for name in self._unread(days.names(TAP, (since, now))):
            for tapped in days.rows_of(name, tapped_row):
                self._take_event(tapped)
        self.damaged |= days.damaged
        found = self._evidence
        found.tally.add(self._rehearsal.tally())
        began_ms, stage_ms = self._rollout.began_ms, self._rollout.stage_ms
        for each in (found.before, found.others_before):
            each.seconds = (began_ms - self._first_ms) / 1_000
        for each in (found.stage, found.others):
            each.seconds = (self._last_ms - stage_ms) / 1_000
        return found

    def _unread(self, names: Iterable[str]) -> list[str]:
        found = [each for each in names if each not in self._read]
        self._read.update(found)
        return found

    def _population(self, thing: str, at_ms: int) -> DevicesHeard | None:
        """Return whose an event of a device is; None for one from between the start and this stage."""
        found, is_member = self._evidence, thing in self._members
        if at_ms >= self._rollout.stage_ms:
            return found.stage if is_member else found.others
        if self._since_ms <= at_ms < self._rollout.began_ms:
            return found.before if is_member else found.others_before
        return None

    def _take_event(self, tapped: Tapped) -> None:
        event, thing, at_ms = tapped.event, tapped.client, tapped.accepted_at_ms
        if (population := self._population(thing, at_ms)) is None:
            return
        self._first_ms, self._last_ms = min(self._first_ms, at_ms), max(self._last_ms, at_ms)
        is_alarm = self._former.priority(event, self._former.device.outbox) is Priority.URGENT
        population.types[event.type] += 1
        population.last_ms[thing] = max(at_ms, population.last_ms.get(thing, 0))
        recorded = event.attributes.get("recordedtime", event.attributes.get("time"))
        if recorded is not None:
            up_ms = max(0, at_ms - timestamp_ms(str(recorded)))
            self._take_time("up_ms", population, event.type, thing, up_ms, is_alarm=is_alarm)
        self._take_report(event, thing, population)
        is_under = event.attributes.get(FOLLOWED_CONTRACT) == self._rollout.version
        if not is_under or at_ms < self._rollout.began_ms:
            return  # an earlier attempt is none of this one
        found = self._evidence
        found.following.add(thing)
        if population is found.stage:
            found.events += 1
            found.alarms += is_alarm
            decided_ms, is_refused = self._late.pop(event.claim, (at_ms, False))
            self._rehearsal.take(tapped._replace(decided_at_ms=decided_ms, is_refused=is_refused))

    def _take_report(self, event: Envelope, thing: str, population: DevicesHeard) -> None:
        """Count what a device reports of its own: what it gave up, and whether it takes the contract."""
        if reason := reason_in(event):
            population.ends(f"dead-lettered at home: {reason}", thing, f"{event.id} of {event.source}")
        elif event.type == DISCARDED:
            for loss, count in losses(event).items():
                population.ends(
                    f"{loss.outcome} at home: {loss.reason}", thing, f"those for {loss.where}", count
                )
        elif event.type == ACKNOWLEDGED and population is self._evidence.stage:
            try:
                answers, _ = from_data(event.data())
            except AcknowledgementError:
                return
            for each in answers:
                if each.key == self._key and each.result is AckStatus.REJECTED:
                    self._evidence.rejected[thing] = each.detail or each.reason

    def _take_decision(self, row: Mapping[str, Any]) -> None:
        thing, entered_ms = row["client_id"], row["entered_at_ms"]
        population = self._population(thing, entered_ms) if thing else None
        if population is None or row["entered_by"] != self._former.device.outbox.address:
            return
        if population is self._evidence.stage:
            self._evidence.decided += self._is_new(row["contract_version"])
        outcome, reason, delay_ms = row["outcome"], row["reason"], row["decided_at_ms"] - entered_ms
        is_payload = outcome == Outcome.DEAD_LETTERED and reason in PAYLOAD_REASONS
        if population is self._evidence.stage and (is_payload or delay_ms >= LATE_MS):
            self._late[row["source"], row["id"]] = row["decided_at_ms"], is_payload
        if outcome in _ENDS:
            what = " ".join(filter(None, (f"{outcome.replace('_', ' ')}:", reason)))
            population.ends(what.removesuffix(":"), thing, f"{row['id']} of {row['source']}")
        else:
            is_alarm = row["priority"] == Priority.URGENT
            self._take_time("decided_ms", population, row["type"], thing, delay_ms, is_alarm=is_alarm)

    def _is_new(self, version: str) -> bool:
        """Return whether a version is the new contract, with whatever participants subscribed."""
        if version not in self._versions:
            text = body_of(self._archive, f"{CONTRACTS}/{version}.json")
            found = load_compiled(text, version) if text else None
            self._versions[version] = found is not None and is_derived(found, self._published)
        return self._versions[version]

    def _take_time(
        self, name: str, population: DevicesHeard, type: str, thing: str, ms: int, *, is_alarm: bool
    ) -> None:
        if is_alarm:
            getattr(population, name).append(ms)
        else:
            # Devices are told apart where some may be late.
            population.waited(name, type, thing if population is self._evidence.stage else "", ms)
