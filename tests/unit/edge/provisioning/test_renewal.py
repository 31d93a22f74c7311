"""A device is never without credentials, whatever the cloud says and whenever the power goes."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from edge.certificate import Validity
from edge.provisioning import (
    IdentityFileError,
    KeyMakingError,
    NotAcceptedError,
    ProvisioningError,
    RejectedError,
    UnreachableError,
)
from edge.provisioning.exchange import Created, Exchange, Request
from edge.provisioning.renewal import MOST_TRIES, Identity, Outcome, Renewal, SigningRequest, is_due

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(not_before: datetime, not_after: datetime, name: str = "home-1") -> str:
    """A certificate that signs itself, in PEM."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    number = x509.random_serial_number()
    builder = x509.CertificateBuilder(subject, subject, KEY.public_key(), number, not_before, not_after)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


NOW = datetime(2026, 6, 1, tzinfo=UTC)
OLD = certificate(NOW - timedelta(days=300), NOW + timedelta(days=60), "old")
GOOD = certificate(NOW - timedelta(days=1), NOW + timedelta(days=300), "good")

CLAIM = "the claim"


class FakeCloud:
    """Issues certificates, registers them, and accepts connections with those that are registered."""

    def __init__(self) -> None:
        self.registered = {OLD, GOOD}
        self.requests: list[str | None] = []
        self.reachable = True
        self.refusal: ProvisioningError | None = None
        self.slow_policies = 0
        self.refuses_own = False
        self.asked_with: list[str] = []

    def run(
        self, exchange: Exchange, on_created: Callable[[Created], None], pair: Path | None = None
    ) -> None:
        self._reach()
        self.asked_with.append(pair.read_text() if pair else CLAIM)
        if pair and not accepts(self, pair):
            raise UnreachableError("renewal-home-1", "bad certificate")
        if pair and self.refuses_own:
            raise RejectedError("register", 403, "AccessDenied", "not its certificate")
        self.requests.append(exchange.first.topic)
        fresh = certificate(NOW, NOW + timedelta(days=360))
        key = None if "csr" in exchange.first.topic else "cloud's key"
        on_created(Created(fresh, key, Request("register", "t", b"")))
        if self.refusal:
            raise self.refusal
        self.registered.add(fresh)

    def try_pair(self, pair: Path) -> None:
        self._reach()
        if self.slow_policies:
            self.slow_policies -= 1
            raise UnreachableError("home-1", "not authorised")
        if not accepts(self, pair):
            raise UnreachableError("home-1", "bad certificate")

    def _reach(self) -> None:
        if not self.reachable:
            raise UnreachableError("home-1", "no network")


def accepts(cloud: FakeCloud, pair: Path) -> bool:
    return pair.exists() and any(each.strip() in pair.read_text() for each in cloud.registered)


@pytest.fixture
def cloud() -> FakeCloud:
    return FakeCloud()


@pytest.fixture
def identity(tmp_path: Path) -> Identity:
    return Identity(tmp_path / "identity.pem")


def renewal(identity: Identity, cloud: FakeCloud, *, own_key: bool = True) -> Renewal:
    make = (lambda thing: SigningRequest("own key", f"request of {thing}")) if own_key else None
    return Renewal(identity, cloud, "fleet", "home-1", 365 * 86_400, make)


def attempt(identity: Identity, cloud: FakeCloud) -> Outcome:
    return renewal(identity, cloud).attempt(NOW.timestamp())


@pytest.mark.parametrize(
    "before", [None, OLD, "damaged", "-----BEGIN CERTIFICATE-----AA-----END CERTIFICATE-----"]
)
@pytest.mark.parametrize("own_key", [True, False])
def test_what_is_missing_old_or_damaged_is_replaced(
    identity: Identity, cloud: FakeCloud, before: str | None, own_key: bool
) -> None:
    if before:
        identity.path.write_text(before)
    assert renewal(identity, cloud, own_key=own_key).attempt(NOW.timestamp()) is Outcome.RENEWED
    pair = identity.path.read_text()
    assert pair.startswith("own key\n" if own_key else "cloud's key\n")
    assert accepts(cloud, identity.path)
    assert before is None or before not in pair
    assert stat.S_IMODE(identity.path.stat().st_mode) == 0o600
    assert sorted(each.name for each in identity.path.parent.iterdir()) == ["identity.pem"]


def test_a_device_with_a_certificate_that_connects_asks_with_it(identity: Identity, cloud: FakeCloud) -> None:
    identity.path.write_text(OLD)
    assert attempt(identity, cloud) is Outcome.RENEWED
    assert cloud.asked_with == [OLD]


@pytest.mark.parametrize(("before", "refuses_own"), [("damaged", False), (OLD, True)])
def test_a_device_whose_certificate_is_of_no_use_asks_with_the_claim(
    identity: Identity, cloud: FakeCloud, before: str, refuses_own: bool
) -> None:
    identity.path.write_text(before)
    cloud.refuses_own = refuses_own
    assert attempt(identity, cloud) is Outcome.RENEWED
    assert cloud.asked_with == [before, CLAIM]


def test_what_has_life_left_stays(identity: Identity, cloud: FakeCloud) -> None:
    identity.path.write_text(GOOD)
    cloud.reachable = False
    assert attempt(identity, cloud) is Outcome.VALID
    assert identity.path.read_text() == GOOD


def test_a_file_that_others_could_read_is_not_written_into(identity: Identity, cloud: FakeCloud) -> None:
    left = identity.path.with_name("identity.pem.next.unfinished")
    left.write_text("half")
    left.chmod(0o644)
    attempt(identity, cloud)
    assert stat.S_IMODE(identity.path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "refusal", [RejectedError("register", 403, "AccessDenied", ""), UnreachableError("c", "")]
)
def test_a_refusal_leaves_the_old_pair_in_use(
    identity: Identity, cloud: FakeCloud, refusal: ProvisioningError
) -> None:
    identity.path.write_text(OLD)
    cloud.refusal = refusal
    with pytest.raises(type(refusal)):
        attempt(identity, cloud)
    assert identity.path.read_text() == OLD
    cloud.refusal = None
    it = renewal(identity, cloud)
    outcomes = [_outcome(it) for _ in range(MOST_TRIES)]
    assert outcomes[-1] is Outcome.RENEWED
    assert accepts(cloud, identity.path)


def _outcome(it: Renewal) -> object:
    try:
        return it.attempt(NOW.timestamp())
    except ProvisioningError as error:
        return type(error)


def test_a_policy_that_is_not_in_force_yet_costs_no_second_certificate(
    identity: Identity, cloud: FakeCloud
) -> None:
    identity.path.write_text(OLD)
    cloud.slow_policies = MOST_TRIES - 1
    it = renewal(identity, cloud)
    assert [_outcome(it) for _ in range(MOST_TRIES)] == [NotAcceptedError] * (MOST_TRIES - 1) + [
        Outcome.RENEWED
    ]
    assert len(cloud.requests) == 1


def test_a_pair_that_never_connects_is_replaced_by_another(identity: Identity, cloud: FakeCloud) -> None:
    identity.path.write_text(OLD)
    identity.stage("key", "never registered")
    it = renewal(identity, cloud)
    assert [_outcome(it) for _ in range(MOST_TRIES)] == [NotAcceptedError] * (MOST_TRIES - 1) + [
        Outcome.RENEWED
    ]


def test_without_a_network_a_waiting_pair_is_kept(identity: Identity, cloud: FakeCloud) -> None:
    fresh = certificate(NOW, NOW + timedelta(days=300))
    cloud.registered.add(fresh)
    identity.path.write_text(OLD)
    identity.stage("key", fresh)
    cloud.reachable = False
    it = renewal(identity, cloud)
    for _ in range(2 * MOST_TRIES):
        assert _outcome(it) in (NotAcceptedError, UnreachableError)
    cloud.reachable = True
    assert _outcome(it) is Outcome.RENEWED
    assert (cloud.requests, fresh.strip() in identity.path.read_text()) == ([], True)


def test_a_device_that_cannot_make_a_key_does_not_ask_the_cloud_for_one(
    identity: Identity, cloud: FakeCloud
) -> None:
    def fail(thing: str) -> SigningRequest:
        raise KeyMakingError("there is no openssl program")

    with pytest.raises(KeyMakingError):
        Renewal(identity, cloud, "fleet", "home-1", 1.0, fail).attempt(NOW.timestamp())
    assert cloud.requests == []


def test_a_full_disk_is_named_and_changes_nothing(
    identity: Identity, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity.path.write_text(OLD)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(IdentityFileError, match="No space left"):
        attempt(identity, cloud)
    assert identity.path.read_text() == OLD


def test_only_one_provisioning_runs_at_a_time(identity: Identity) -> None:
    with identity.locked(), pytest.raises(IdentityFileError, match="another provisioning"), identity.locked():
        pytest.fail("both hold the lock")
    with identity.locked():
        assert identity.current() is None


class PowerCutError(BaseException):
    """Not an Exception: nothing in the code may catch it."""


class Disk:
    """Counts the file operations of `edge.provisioning.renewal`, and cuts the power before number `cut`.

    Of a file that was not synced nothing is left but its name. A rename that was not synced is undone when
    `forgets_renames`: both outcomes happen in the world.
    """

    def __init__(self, patch: pytest.MonkeyPatch, cut: int, *, forgets_renames: bool) -> None:
        self.operations = 0
        self._cut = cut
        self._forgets = forgets_renames
        self._names: dict[int, str] = {}  # by descriptor, which the next file may get again
        self._unsynced: set[str] = set()
        self._undo: list[Callable[[], None]] = []
        self._real = {name: getattr(os, name) for name in ("open", "replace", "fsync", "unlink")}
        for name in self._real:
            patch.setattr(os, name, getattr(self, f"_{name}"))

    def fail(self) -> None:
        """The power goes: what was not synced goes with it."""
        for path in self._unsynced:
            os.truncate(path, 0)
        if self._forgets:
            for undo in reversed(self._undo):
                undo()

    def _count(self) -> None:
        self.operations += 1
        if self.operations == self._cut:
            raise PowerCutError

    def _open(self, path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        self._count()
        descriptor: int = self._real["open"](path, flags, *arguments, **options)
        self._names[descriptor] = str(path)
        if flags & os.O_WRONLY:
            self._unsynced.add(str(path))
        return descriptor

    def _fsync(self, descriptor: int) -> None:
        self._count()
        self._real["fsync"](descriptor)
        if Path(self._names[descriptor]).is_dir():
            self._undo.clear()  # its renames are on the disk
        self._unsynced.discard(self._names[descriptor])

    def _replace(self, source: Any, target: Any) -> None:
        self._count()
        before = Path(target).read_bytes() if Path(target).exists() else None
        content = Path(source).read_bytes()
        self._real["replace"](source, target)
        if str(source) in self._unsynced:
            self._unsynced.remove(str(source))
            self._unsynced.add(str(target))

        def undo() -> None:
            Path(source).write_bytes(content)
            if before is None:
                Path(target).unlink()
            else:
                Path(target).write_bytes(before)

        self._undo.append(undo)

    def _unlink(self, path: Any, **options: Any) -> None:
        self._count()
        self._real["unlink"](path, **options)


def _operations_of_a_renewal(tmp_path: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch, cut=0, forgets_renames=False)
        attempt(Identity(tmp_path / "counted.pem"), FakeCloud())
    return disk.operations


@pytest.mark.parametrize("forgets_renames", [False, True])
def test_a_power_cut_before_any_operation_leaves_a_pair_that_works(
    tmp_path: Path, forgets_renames: bool
) -> None:
    operations = _operations_of_a_renewal(tmp_path)
    assert operations >= 8  # the pair's file opened and synced, two renames with their directory
    for cut in range(1, operations + 1):
        cloud, identity = FakeCloud(), Identity(tmp_path / f"cut-{cut}" / "identity.pem")
        identity.path.parent.mkdir()
        identity.path.write_text(OLD)
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, cut, forgets_renames=forgets_renames)
            with pytest.raises(PowerCutError):
                attempt(identity, cloud)
            disk.fail()
        assert accepts(cloud, identity.path), f"cut before operation {cut}"
        # And the device comes to its new certificate after all.
        it = renewal(identity, cloud)
        outcomes = [_outcome(it) for _ in range(MOST_TRIES)]
        assert Outcome.RENEWED in outcomes or "old" not in identity.path.read_text()
        assert accepts(cloud, identity.path)


DAY_S = 86_400
START = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("life_days", "day", "due"),
    [
        *((360, day, False) for day in (-400, 0, 239)),
        *((360, day, True) for day in (241, 359, 400)),
        (24 * 365, 499, False),
        (24 * 365, 501, True),
    ],
)
def test_a_certificate_is_due_in_the_last_third_of_its_life_and_at_500_days(
    life_days: int, day: int, due: bool
) -> None:
    validity = Validity(START, START + timedelta(days=life_days))
    assert is_due(validity, day * DAY_S, 500 * DAY_S) is due
