"""A device in the fleet's registry: what its record knows. The part `fleet` decides how it changes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from eventplane.records import Item, RecordKind

CLAIM: Final = "claim"
"""The holder of what is registered with the claim."""

FLEET: Final = "fleet"
"""The archive's folder of snapshots of the registry."""


class LifecycleState(StrEnum):
    """The lifecycle state of a device. A quarantined one can be released; a decommissioned one stays so."""

    MADE = "made"
    PROVISIONED = "provisioned"
    QUARANTINED = "quarantined"
    DECOMMISSIONED = "decommissioned"


@dataclass(frozen=True, slots=True)
class FleetRecord:
    """One device in service when a snapshot of the registry was taken, in `state` since `since_ms` (Unix
    milliseconds)."""

    thing: str
    state: LifecycleState
    since_ms: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A `certificate` that was registered at `at_ms` and never seen, by `holder`: a certificate's id, or
    `CLAIM`."""

    certificate: str
    at_ms: int
    holder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The registry's record of a device. Times are Unix milliseconds, certificates are their ids.

    Args:
        since_ms: when it came into its `state`.
        certificate: the one in use, first seen at `certificate_since_ms` (0: unknown).
        candidates: those that were registered, until a connection has stood with them; oldest first.
        replaced: those that had their time and still have to be deactivated. A candidate among them may
            still be seen until then.
        former: those that had their time and are deactivated; oldest first.
        condemned: those that are never active again.
        registrations: how many certificates were ever registered; `asked` has the holder of each of those
            of `day`, counted from 1970.
        replacement_until_ms: until then the claim may register it although it is provisioned.
        reason: why it was quarantined or decommissioned.
        groups: those that an event to a group reaches.
        suspended: those that a quarantine deactivated, until a release has activated them again.
        before: the state that a quarantined device returns to.
        takeovers: how often a connection of the device was taken over in `takeover_window`.
        revision: how often the record was written: what a writer has to have read.
    """

    thing: str
    state: LifecycleState
    changed_at_ms: int
    since_ms: int
    certificate: str | None = None
    certificate_since_ms: int = 0
    candidates: tuple[Candidate, ...] = ()
    replaced: frozenset[str] = frozenset()
    former: tuple[str, ...] = ()
    condemned: frozenset[str] = frozenset()
    registrations: int = 0
    day: int = 0
    asked: tuple[str, ...] = ()
    replacement_until_ms: int = 0
    reason: str = ""
    groups: frozenset[str] = frozenset()
    suspended: frozenset[str] = frozenset()
    before: LifecycleState | None = None
    takeovers: int = 0
    takeover_window: int = 0
    revision: int = 0

    @property
    def pending(self) -> tuple[str, ...]:
        """The candidates' certificates, oldest first."""
        return tuple(each.certificate for each in self.candidates)

    @property
    def surplus(self) -> tuple[str, ...]:
        """Candidates of the claim beyond `MAX_CANDIDATES`, oldest first: each may be seen until it ends."""
        claimed = (each.certificate for each in self.candidates if each.holder == CLAIM)
        return tuple(each for each in claimed if each in self.replaced)

    @property
    def certificates(self) -> frozenset[str]:
        """All that may be active, or become active again."""
        own = {self.certificate} if self.certificate else frozenset[str]()
        return (self.replaced | self.suspended | own | {*self.pending}) - self.condemned

    def holds(self, certificate: object) -> bool:
        """Return whether `certificate` is, or was, this device's: none that somebody else registered."""
        return certificate in self.certificates | self.condemned | {*self.former}


FLEET_TABLE: Final = "fleet"
"""What the table is called, without project and environment."""


def _upgraded(item: Item) -> Item:
    # Items of early versions have no `since_ms`. Those of 0.3.0 have one candidate at most, and no holders.
    since_ms, state = item.get("since_ms", item["changed_at_ms"]), item["state"]["S"]
    holder = {"S": CLAIM if state == LifecycleState.MADE else ""}
    pending = {"certificate": item.get("pending"), "at_ms": item["changed_at_ms"], "holder": holder}
    candidates = [{"M": pending}] if "pending" in item else []
    asked = [{"S": ""}] * int(item.get("registered_today", {"N": 0})["N"])
    return {
        "since_ms": since_ms,
        # At the latest: a renewal is never early by mistake.
        "certificate_since_ms": since_ms if state == LifecycleState.PROVISIONED else {"N": "0"},
        "candidates": {"L": candidates},
        "asked": {"L": asked},
        **item,
    }


REGISTRY: Final = RecordKind(
    type=Device,
    key=("thing",),
    # Beside this version runs 0.3.0 during a deployment, which reads them.
    derived={
        "pending": lambda device: device.pending[-1] if device.candidates else None,
        "registered_today": lambda device: len(device.asked),
    },
    upgrade=_upgraded,
)
"""How the registry keeps its devices."""
