"""A device is never without credentials, whatever the cloud says and whenever the power goes."""

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from eventplane_mqtt.tls import Validity
from lab.benchmarks.power.cuts import leftovers
from lab.benchmarks.power.disk import Print, record
from lab.benchmarks.power.workload import NAME
from parts.provisioning import (
    IdentityFileError,
    KeyMakingError,
    NotAcceptedError,
    OfflineError,
    ProvisioningError,
    RejectedError,
    WrongThingError,
)
from parts.provisioning.exchange import Exchange, Keep
from parts.provisioning.renewal import MOST_TRIES, Pairs, Renewal, Renewed, is_due

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
CONDEMNED = certificate(NOW - timedelta(days=1), NOW + timedelta(days=300), "condemned")

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

    def run(self, exchange: Exchange, keep: Keep, pair: Path | None = None) -> None:
        self._reach()
        self.asked_with.append(pair.read_text() if pair else CLAIM)
        if pair and not accepts(self, pair):
            raise OfflineError("renewal-home-1", "bad certificate")
        if pair and self.refuses_own:
            raise RejectedError("register", 403, "AccessDenied", "not its certificate")
        self.requests.append(exchange.signing_request)
        fresh = certificate(NOW, NOW + timedelta(days=360))
        keep(fresh, None if exchange.signing_request else "cloud's key")
        if self.refusal:
            raise self.refusal
        self.registered.add(fresh)

    def try_pair(self, pair: Path) -> None:
        self._reach()
        if self.slow_policies:
            self.slow_policies -= 1
            raise OfflineError("home-1", "not authorised")
        if not accepts(self, pair):
            raise OfflineError("home-1", "bad certificate")

    def accepts(self, pair: Path | None) -> bool:
        return self.reachable and (pair is None or accepts(self, pair))

    def _reach(self) -> None:
        if not self.reachable:
            raise OfflineError("home-1", "no network")


def accepts(cloud: FakeCloud, pair: Path) -> bool:
    return pair.exists() and any(each.strip() in pair.read_text() for each in cloud.registered)


@pytest.fixture
def cloud() -> FakeCloud:
    return FakeCloud()


@pytest.fixture
def identity(tmp_path: Path) -> Pairs:
    return Pairs(tmp_path / "identity.pem")


def renewal(identity: Pairs, cloud: FakeCloud, *, own_key: bool = True) -> Renewal:
    make = (lambda thing: ("own key", f"request of {thing}")) if own_key else None
    return Renewal(identity, cloud, "fleet", "home-1", 365 * 86_400, make)


def attempt(identity: Pairs, cloud: FakeCloud) -> Renewed:
    return renewal(identity, cloud).attempt(NOW.timestamp())


@pytest.mark.parametrize(
    "before", [None, OLD, "damaged", "-----BEGIN CERTIFICATE-----AA-----END CERTIFICATE-----"]
)
@pytest.mark.parametrize("own_key", [True, False])
def test_bad_is_replaced(identity: Pairs, cloud: FakeCloud, before: str | None, own_key: bool) -> None:
    if before:
        identity.path.write_text(before)
    assert renewal(identity, cloud, own_key=own_key).attempt(NOW.timestamp()) is Renewed.RENEWED
    pair = identity.path.read_text()
    assert pair.startswith("own key\n" if own_key else "cloud's key\n")
    assert accepts(cloud, identity.path)
    assert before is None or before not in pair
    assert stat.S_IMODE(identity.path.stat().st_mode) == 0o600
    assert sorted(each.name for each in identity.path.parent.iterdir()) == ["identity.pem"]


@pytest.mark.parametrize(
    ("before", "refuses_own", "asked_with"),
    [
        (OLD, False, [OLD]),
        ("damaged", False, ["damaged", CLAIM]),
        (OLD, True, [OLD, CLAIM]),
        (CONDEMNED, False, [CLAIM]),
    ],
)
def test_a_useless_certificate_needs_the_claim(
    identity: Pairs, cloud: FakeCloud, before: str, refuses_own: bool, asked_with: list[str]
) -> None:
    identity.path.write_text(before)
    cloud.refuses_own = refuses_own
    assert attempt(identity, cloud) is Renewed.RENEWED
    assert cloud.asked_with == asked_with


def test_what_has_life_left_stays(identity: Pairs, cloud: FakeCloud) -> None:
    identity.path.write_text(GOOD)
    cloud.reachable = False
    assert attempt(identity, cloud) is Renewed.VALID
    assert identity.path.read_text() == GOOD


def test_a_file_that_others_could_read_is_not_written_into(identity: Pairs, cloud: FakeCloud) -> None:
    left = identity.path.with_name("identity.pem.next.unfinished")
    left.write_text("half")
    left.chmod(0o644)
    attempt(identity, cloud)
    assert stat.S_IMODE(identity.path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "refusal",
    [
        RejectedError("register", 403, "AccessDenied", ""),
        WrongThingError("home-1", "home-2"),
        OfflineError("c", ""),
    ],
)
def test_a_refusal_keeps_the_old(identity: Pairs, cloud: FakeCloud, refusal: ProvisioningError) -> None:
    identity.path.write_text(OLD)
    cloud.refusal = refusal
    with pytest.raises(type(refusal)):
        attempt(identity, cloud)
    assert identity.path.read_text() == OLD
    cloud.refusal = None
    # A refused pair is not tried: it takes no room from those that may be in force.
    tries = MOST_TRIES if isinstance(refusal, OfflineError) else 1
    it = renewal(identity, cloud)
    assert [_outcome(it) for _ in range(tries)][-1] is Renewed.RENEWED
    assert accepts(cloud, identity.path)


def _outcome(it: Renewal) -> object:
    try:
        return it.attempt(NOW.timestamp())
    except ProvisioningError as error:
        return type(error)


@pytest.mark.parametrize("is_staged", [False, True], ids=["slow policies", "never registered"])
def test_a_pair_without_connection(identity: Pairs, cloud: FakeCloud, is_staged: bool) -> None:
    identity.path.write_text(OLD)
    if is_staged:
        identity.stage("key", "never registered")
    else:
        cloud.slow_policies = MOST_TRIES - 1
    it = renewal(identity, cloud)
    outcomes = [_outcome(it) for _ in range(MOST_TRIES)]
    assert outcomes == [NotAcceptedError] * (MOST_TRIES - 1) + [Renewed.RENEWED]
    assert len(cloud.requests) == 1


def test_no_key_no_request(identity: Pairs, cloud: FakeCloud) -> None:
    def fail(thing: str) -> tuple[str, str]:
        raise KeyMakingError("there is no openssl program")

    with pytest.raises(KeyMakingError):
        Renewal(identity, cloud, "fleet", "home-1", 1.0, fail).attempt(NOW.timestamp())
    assert cloud.requests == []


def test_a_full_disk_is_named(identity: Pairs, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    identity.path.write_text(OLD)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(IdentityFileError, match="No space left"):
        attempt(identity, cloud)
    assert identity.path.read_text() == OLD


def test_only_one_provisioning_runs_at_a_time(identity: Pairs) -> None:
    with identity.locked(), pytest.raises(IdentityFileError, match="another provisioning"), identity.locked():
        pytest.fail("both hold the lock")
    with identity.locked():
        assert identity.current() is None


def test_a_power_cut_at_any_time_leaves_a_pair_that_works(tmp_path: Path) -> None:
    directory = tmp_path / "device"
    calls = record(directory, "renew", str(directory / NAME))
    for place, _, path in leftovers(calls, 200, 1):
        said = [json.loads(each.line) for each in calls[:place] if isinstance(each, Print)]
        if "issued" not in said:
            continue
        cloud, identity = FakeCloud(), Pairs(path)
        cloud.registered = {"old", "new"} if "registered" in said else {"old"}
        assert accepts(cloud, path), f"cut before call {place}"
        assert "proven" in said or "old" in path.read_text()
        # One that is older than the pair in use would take its place.
        assert "new" not in path.read_text() or identity.unproven() == []
        # And the device comes to its new certificate after all.
        it = renewal(identity, cloud)
        outcomes = [_outcome(it) for _ in range(MOST_TRIES)]
        assert Renewed.RENEWED in outcomes
        assert accepts(cloud, path)
        assert path.read_text() != "old"  # random base64 may contain the word


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
def test_due_in_the_last_third_or_at_500_days(life_days: int, day: int, due: bool) -> None:
    validity = Validity(START, START + timedelta(days=life_days))
    assert is_due(validity, day * DAY_S, 500 * DAY_S) is due
