"""The spool: SQLite, one writer. What a commit took is on the disk when it returns.

A commit takes many received events and many ended deliveries at once (WAL, `synchronous=FULL`); nothing is
acknowledged before. Each destination has its own pending deliveries, ordered by priority rank and then
sequence. An event is deleted when none of its deliveries is pending.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Self

from edge import durable
from edge.durable import can_load
from edge.errors import SpoolCorruptError, SpoolError, SpoolFullError, SpoolUnavailableError
from edge.spool import (
    BEFORE_EVERYTHING,
    Delivery,
    DeviceState,
    Discard,
    LossReport,
    Manifest,
    PendingDelivery,
    SpoolOrigin,
    StoredEvent,
    files,
)
from edge.spool.database import (
    PAGE_BYTES,
    DamagedRowError,
    DeviceRow,
    TableTotals,
    check_header,
    connect,
    connect_to_read,
    create,
    has_tables,
    invalid_is_damage,
    named_errors,
    new_epoch,
    transaction,
    upgrade,
)
from edge.spool.deliveries import Deliveries, PendingQueues
from edge.spool.files import Space, marker_of, reserve_of, written_bytes
from edge.spool.tables import (
    StoredKeys,
    add_discards,
    forget_loss_reports,
    put_counters,
    read_counters,
    read_loss_reports,
)
from edge.system import Host, Uptime, UptimeClock

if TYPE_CHECKING:
    from edge.spool.states import DeviceStates

CAPACITY_BYTES = 256 * 1024 * 1024
"""Default for the bytes that are stored at most: a day without a network at 5 events a second."""

READ_CHARACTERS = 512 * 1024
"""A read stops once it holds this much text, so that memory stays bounded for events of any size."""

_NEW_BYTES = 2 * PAGE_BYTES
"""A file without tables is not longer; the tables come to it with the first checkpoint."""

CAPACITY_DELIVERIES = 1_000_000
"""Default for the deliveries that are pending at most: more than CAPACITY_BYTES holds of usual events."""


class Spool:
    """The store at `path`, created when it is not there. Opening takes the same time however much is in it.

    It is of one `thing` (None: of anybody): that of another is set aside, and a new one begins.

    With `on_disk` False it is in memory and stays empty: it refuses every event and state as a full one does,
    and the pressure of its `space` is 1.0.

    `space` bounds what may be in it, and says how much is.

    Every method raises `SpoolCorruptError` when the file is damaged, `SpoolFullError` when there is no room,
    and `SpoolUnavailableError` when the disk is missing, read-only or broken; the constructor also
    `SpoolError` while another process has the spool.
    """

    def __init__(
        self,
        path: Path,
        system: Host,
        *,
        capacity_bytes: int = CAPACITY_BYTES,
        capacity_deliveries: int = CAPACITY_DELIVERIES,
        on_disk: bool = True,
        thing: str | None = None,
    ) -> None:
        self.path = path
        self._thing = thing
        self.is_on_disk = on_disk
        self._capacities = capacity_bytes, capacity_deliveries
        self._system = system
        self._closing = contextlib.ExitStack()
        self._kept: dict[str, int] = {}
        with named_errors(path, "cannot be opened"), contextlib.ExitStack() as undo:
            if on_disk:
                self._open_on_disk(undo)
            else:
                self._db = undo.enter_context(contextlib.closing(connect(None)))
                with transaction(self._db):
                    clock = UptimeClock(system.uptime)
                    create(self._db, SpoolOrigin("without_disk"), clock, new_epoch(system.random_bytes))
                self._load(None)
            self._closing = undo.pop_all()
        self._written_before = written_bytes()

    def commit(
        self,
        events: Sequence[StoredEvent],
        done: Iterable[Delivery] = (),
        discarded: Iterable[Discard] = (),
        *,
        uptime_ms: int,
        states: Sequence[DeviceState] = (),
        close_manifests: bool = False,
        close_loss_reports: bool = False,
    ) -> None:
        """Store events, replace states of the same kind and key, and end deliveries, in one transaction.

        `events` are numbered on from `next_sequence`. What is closed is what `manifests` and `loss_reports`
        returned before this commit; what it stores and discards itself counts for the next report.
        Raises `ValueError` for other numbers.
        """
        if any(each.sequence != number for number, each in enumerate(events, self.next_sequence)):
            raise ValueError(f"events have to be numbered on from {self.next_sequence}")
        if not self.is_on_disk and (events or states):
            remedy = "see why its disk cannot be used"
            raise SpoolFullError(self.path, "cannot commit: it is in memory", remedy)
        done, discarded = list(done), list(discarded)

        def write(totals: TableTotals) -> DeviceRow:
            if close_manifests:
                self._queues.close_manifests()
            if close_loss_reports:
                forget_loss_reports(self._db, totals)
            self._end(done, totals)
            kinds = {each.delivery: each for each in discarded}
            # One that has ended already counts for nothing.
            add_discards(self._db, [kinds[each] for each in self._end(kinds, totals)], totals)
            # Last, so that events find room in the place of what ends with them.
            self._insert(events, uptime_ms, totals)
            put_counters(self._db, self.counted, counted, totals)
            if states:
                self._states.put(states, totals)
            self._queues.write(totals)
            return self._write_device(len(events), uptime_ms, totals)

        # The last one of a counter stands.
        counted = self._kept | {name: last for each in events for name, last in each.positions.items()}
        try:
            self._commit(write)
        except SpoolFullError:
            self.space.refused = True
            if events or states:
                raise
            # Ending deliveries makes room, and needs some to be written down.
            self.space.give_up_reserve()
            self._commit(write)
        self.counted.update(counted)
        self._kept = {}
        self.space.committed(sum(len(each.json) for each in events))

    def keep(self, name: str, number: int) -> None:
        """Store the number of a counter with the next commit."""
        self._kept[name] = number

    def read(self, destination: str, rank: int, after: int, limit: int) -> list[PendingDelivery]:
        """Return up to `limit` pending deliveries of one destination and rank, in order, behind `after`.

        At least one when there is one; fewer than `limit` also when they hold `READ_CHARACTERS`.
        """
        found: list[PendingDelivery] = []
        characters = 0
        queue = self._queues.get(destination, rank)
        if queue is None:
            return found
        with self._reading():
            for sequence, text, expires_ms, stored_ms in self._deliveries.read(queue, after):
                delivery = Delivery(destination, rank, sequence)
                found.append(PendingDelivery(delivery, text, expires_ms, stored_ms))
                characters += len(text)
                if len(found) == limit or characters >= READ_CHARACTERS:
                    break
        return found

    def device_state(self, kind: str, key: str) -> DeviceState | None:
        """Return what the device holds of a key, None for nothing and for a deletion that is forgotten."""
        if not self._totals.total("device_state")[0]:
            return None
        with self._reading():
            return self._states.get(kind, key)

    def state_count(self) -> int:
        """Return how many keys have a state."""
        with self._reading():
            return self._states.count()

    def state_bytes(self) -> int:
        """Return the bytes of all states."""
        with self._reading():
            return self._states.size()

    def newest(self, destination: str, rank: int) -> int:
        """Return the highest sequence ever pending for a destination and rank, else `BEFORE_EVERYTHING`."""
        queue = self._queues.get(destination, rank)
        return queue.newest if queue else BEFORE_EVERYTHING

    def pending(self, destination: str, rank: int) -> int:
        """Return how many deliveries are pending, without a disk access."""
        queue = self._queues.get(destination, rank)
        return queue.pending if queue else 0

    def oldest_stored_ms(self, destination: str, rank: int) -> int | None:
        """Return when the delivery that comes next was stored, None when none is pending."""
        if not self.pending(destination, rank):
            return None
        oldest = self.read(destination, rank, BEFORE_EVERYTHING, 1)
        return oldest[0].stored_ms if oldest else None

    def first_pending(self, destination: str, most: int) -> list[int]:
        """Return the lowest `most` numbers pending for `destination`; negative ones are of salvaged events.

        Each delivery before them was acknowledged, or ended otherwise and is counted by `loss_reports`.
        """
        with self._reading():
            return self._deliveries.first_pending(most, destination)

    def destinations(self) -> list[str]:
        """Return every destination that ever had a delivery."""
        return list(dict.fromkeys(queue.destination for queue in self._queues))

    def backlog(self) -> dict[str, int]:
        """Return the number of pending deliveries by destination."""
        counts = dict.fromkeys(self.destinations(), 0)
        for queue in self._queues:
            counts[queue.destination] += queue.pending
        return counts

    def manifests(self) -> list[Manifest]:
        """Return what was stored since the last closing, of the destinations that got something."""
        return self._queues.manifests()

    def loss_reports(self) -> list[LossReport]:
        """Return what was discarded since the last closing; a long list comes in parts, a closing each."""
        with self._reading():
            return read_loss_reports(self._db)

    def recent_keys(self, count: int) -> list[bytes]:
        """Return the keys of the last `count` events, or as many as are kept, oldest first."""
        with self._reading():
            return self._recent.read(self._device.next_sequence, count)

    def tidy(self) -> bool:
        """Give space back, in a bounded step, for idle times. Returns whether there is more to do.

        After a commit found no room it finds out when there is room again.
        """
        with self._errors("cannot be tidied"):
            return self.space.tidy()

    @cached_property
    def _states(self) -> DeviceStates:
        if not can_load("edge.spool.states"):
            raise SpoolUnavailableError(self.path, "its states cannot be read", "see that the disk works")
        from edge.spool.states import DeviceStates  # which a device without any need not hold

        return DeviceStates(self._db)

    @property
    def next_sequence(self) -> int:
        """The number of the next arrival."""
        return self._device.next_sequence

    @property
    def written_bytes(self) -> int:
        """Return the bytes written by this process since the opening, by the kernel's count (0: unknown)."""
        return written_bytes() - self._written_before

    def close(self) -> None:
        """Close the file; another process may open it then."""
        with named_errors(self.path, "cannot be closed"):
            self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_on_disk(self, undo: contextlib.ExitStack) -> None:
        path, (capacity_bytes, _) = self.path, self._capacities
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        in_use = SpoolError(path, "another forwarder writes it", "stop that one first")
        undo.enter_context(durable.only_one(path, in_use))
        if files.is_recovering(path):
            self._recovery.finish_recovery(path, capacity_bytes, self._system)
        try:
            self._open_without_room(undo)
        except SpoolCorruptError as error:
            if not can_load("edge.spool.recovery"):
                raise
            self._recovery.recover(path, error.damage, self._system)
            self._recovery.finish_recovery(path, capacity_bytes, self._system)
            self._open_without_room(undo)

    @property
    def _recovery(self) -> ModuleType:
        if not can_load("edge.spool.recovery"):
            raise SpoolUnavailableError(self.path, "cannot be recovered", "see that the disk works")
        from edge.spool import recovery  # which a spool in good order does not need

        return recovery

    def _set_aside_other(self) -> None:
        self._recovery.set_aside_other(self.path, self._capacities[0], self._system)

    def _open_without_room(self, undo: contextlib.ExitStack) -> None:
        """A start on a full disk takes the reserve."""
        try:
            self._open(undo)
        except SpoolFullError:
            reserve_of(self.path).unlink(missing_ok=True)
            self._open(undo)

    def _open(self, undo: contextlib.ExitStack) -> None:
        """Raises `SpoolCorruptError` for all damage that shows without reading everything."""
        path = self.path
        with self._errors("cannot be opened"), contextlib.ExitStack() as attempt:
            said = files.take_over(path, self._thing, self._set_aside_other) if self._thing else ""
            if marker_of(path).exists():
                damage = marker_of(path).read_text(encoding="utf-8", errors="replace")
                raise SpoolCorruptError(path, damage or "it was found damaged while it was used")
            note = files.read_note(path)
            with invalid_is_damage(path):
                check_header(path)
                if files.has_log(path):
                    self._check_log(note)
                if note is None and not path.exists():
                    note = files.announce(path, new_epoch(self._system.random_bytes))
                self._db = attempt.enter_context(contextlib.closing(connect(path)))
                if not has_tables(path, self._db):
                    announced = self._check_new(note)
                    clock = UptimeClock(self._system.uptime)
                    with transaction(self._db):
                        create(self._db, SpoolOrigin("created", said), clock, announced.epoch)
                upgrade(self._db)
                self._load(path)
                _check_commits(note, self._device)
            # A process that was killed may have left a commit, or a name, that a power cut still undoes; what
            # is read of it is acknowledged from now on.
            if files.has_log(path):
                durable.sync(files.log_of(path))
            durable.sync(path.parent)
            self._notes = files.CommitNotes(path, self._last_commit())
            attempt.callback(self._notes.close)
            undo.push(attempt.pop_all())

    def _check_log(self, note: files.CommitNote | None) -> None:
        """Find out what SQLite does not read of the log, before it drops that."""
        if not can_load("edge.spool.log"):
            raise SpoolUnavailableError(self.path, "its log cannot be checked", "see that the disk works")
        from edge.spool.log import check_log_end, check_log_header  # which only a start after a kill needs

        if not self.path.exists() or self.path.stat().st_size < PAGE_BYTES:
            # SQLite would remove its log.
            raise SpoolCorruptError(self.path, "the file is empty, but not its log")
        check_log_header(self.path)
        with contextlib.closing(connect_to_read(self.path)) as db:
            if has_tables(self.path, db):
                _check_commits(note, DeviceRow.read(db))
            else:
                self._check_new(note)
            check_log_end(self.path)

    def _check_new(self, note: files.CommitNote | None) -> files.CommitNote:
        """Return the note of the spool that is being created, whose file has no tables yet.

        Raises `SpoolCorruptError` when it had some.
        """
        if self.path.stat().st_size > _NEW_BYTES:
            raise SpoolCorruptError(self.path, "the file is not empty, but has no tables")
        if note is None:
            raise SpoolCorruptError(self.path, "the file is empty, and the note of its last commit damaged")
        if note.commits != files.ANNOUNCED:
            raise SpoolCorruptError(self.path, f"the file is empty after {note.commits} commits")
        return note

    def _load(self, path: Path | None) -> None:
        """Read what every commit needs, in the same time however much is pending; find damage in it."""
        db, device = self._db, DeviceRow.read(self._db)
        self._totals = TableTotals.unpack(device.totals)
        self._totals.check(db)
        self._queues = PendingQueues(db)
        self._deliveries, self._recent = Deliveries(db, self._queues), StoredKeys(db)
        self._device = device
        self.epoch = device.epoch
        self.origin = device.read_origin()
        self.clock = UptimeClock(self._system.uptime, device.uptime_ms, Uptime(device.boot, device.boot_ms))
        self.counted = read_counters(db)
        if self._queues.pending() != device.pending:
            raise DamagedRowError("the number of pending deliveries")
        (self._first,) = self._deliveries.first_pending() or [self.next_sequence]
        self.space = Space(path, db, *self._capacities, self._queues.pending)

    def _last_commit(self) -> files.CommitNote:
        return files.CommitNote.of(self._device, self._totals, self._first)

    def _commit(self, write: Callable[[TableTotals], DeviceRow]) -> None:
        totals = self._totals.copy()
        try:
            with self._errors("cannot commit"), transaction(self._db):
                device = write(totals)
        except BaseException:
            self._queues.forget()
            self.__dict__.pop("_states", None)  # what it has counted
            raise
        self._queues.keep()
        self._totals, self._device = totals, device
        if self.is_on_disk:
            self._notes.write(self._last_commit())

    def _write_device(self, events: int, uptime_ms: int, totals: TableTotals) -> DeviceRow:
        before, (boot, boot_ms) = self._device, self.clock.uptime()
        device = DeviceRow(
            before.epoch,
            before.next_sequence + events,
            before.commits + 1,
            self._queues.pending(),
            max(before.uptime_ms, uptime_ms),
            boot,
            boot_ms,
            # It is reported with the first events: from then on the spool is a resumed one.
            "" if events else before.origin,
            totals.pack(),
        )
        device.write(self._db)
        return device

    def _insert(self, events: Sequence[StoredEvent], uptime_ms: int, totals: TableTotals) -> None:
        self._deliveries.add(events, uptime_ms, totals)
        if events:
            self._recent.add(events[0].sequence, [each.key for each in events])

    def _end(self, deliveries: Iterable[Delivery], totals: TableTotals) -> list[Delivery]:
        """Remove deliveries. Returns those that were there."""
        queues: dict[tuple[str, int], list[int]] = {}
        for destination, rank, sequence in deliveries:
            queues.setdefault((destination, rank), []).append(sequence)
        return [
            Delivery(*queue, sequence)
            for queue, sequences in queues.items()
            for sequence in self._deliveries.end(*queue, sequences, totals)
        ]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        with self._errors("cannot be read"), invalid_is_damage(self.path):
            yield

    @contextlib.contextmanager
    def _errors(self, problem: str) -> Iterator[None]:
        try:
            with named_errors(self.path, problem):
                yield
        except SpoolCorruptError as error:
            if self.is_on_disk and not marker_of(self.path).exists():
                # So that the next opening recovers, even if it finds no damage itself.
                with contextlib.suppress(OSError):
                    marker_of(self.path).write_text(error.damage, encoding="utf-8")
            raise


def _check_commits(note: files.CommitNote | None, device: DeviceRow) -> None:
    """Raise `DamagedRowError` when the database has fewer commits than were noted beside it, or no note."""
    if note is None or note.epoch != device.epoch:
        raise DamagedRowError("the note of the last commit")
    if note.commits > device.commits:
        raise DamagedRowError(
            f"the log: {note.commits - device.commits} of {note.commits} commits are missing, it"
        )
