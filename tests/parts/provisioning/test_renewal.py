"""Provisioning: the conversation as AWS IoT documents it, and the renewal of a certificate."""

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from edge.settings import CloudSettings
from eventplane_mqtt import TlsFiles
from eventplane_mqtt.tls import Validity
from lab.benchmarks.power.cuts import leftovers
from lab.benchmarks.power.disk import Print, record
from lab.benchmarks.power.workload import NAME
from parts.provisioning import (
    AnswerError,
    IdentityFileError,
    KeyMakingError,
    NotAcceptedError,
    OfflineError,
    ProvisioningError,
    RejectedError,
    WrongThingError,
    conversation,
)
from parts.provisioning.exchange import Exchange, Keep
from parts.provisioning.renewal import MOST_TRIES, Pairs, Renewal, Renewed, is_due, make_signing_request

CREATE = "$aws/certificates/create/json"
FROM_REQUEST = "$aws/certificates/create-from-csr/json"
REGISTER = "$aws/provisioning-templates/fleet/provision/json"


def said(**body: Any) -> bytes:
    return json.dumps(body).encode()


CREATED = said(certificateId="1", certificatePem="cert", certificateOwnershipToken="token", privateKey="key")
REGISTERED = said(thingName="home-1")


def run(*answers: bytes, refused: str = "", signing_request: str | None = "csr") -> list[Any]:
    """What a device asks for and keeps, given these answers; that to the step `refused` is a refusal."""
    told, left = [], list(answers)

    def ask(step: str, topic: str, payload: bytes) -> tuple[str, bytes]:
        told.append((step, topic, json.loads(payload)))
        return f"{topic}/{'rejected' if step == refused else 'accepted'}", left.pop(0)

    Exchange("fleet", "home-1", signing_request).run(ask, lambda *kept: told.append(kept))
    return told


@pytest.mark.parametrize(
    ("signing_request", "topic", "asked", "private_key"),
    [("csr", FROM_REQUEST, {"certificateSigningRequest": "csr"}, None), (None, CREATE, {}, "key")],
    ids=["a certificate for its own key", "a key as well"],
)
def test_it_asks_for_what_it_lacks_keeps_it_and_registers(
    signing_request: str | None, topic: str, asked: dict[str, str], private_key: str | None
) -> None:
    register = {"certificateOwnershipToken": "token", "parameters": {"SerialNumber": "home-1"}}
    assert run(CREATED, REGISTERED, signing_request=signing_request) == [
        ("create", topic, asked),
        ("cert", private_key),
        ("register", REGISTER, register),
    ]
    assert set(Exchange("fleet", "home-1", signing_request).topics) == {
        f"{each}/{word}" for each in (topic, REGISTER) for word in ("accepted", "rejected")
    }


def test_a_foreign_answer_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    created, registered = (f"{FROM_REQUEST}/accepted", CREATED), (f"{REGISTER}/accepted", REGISTERED)
    elsewhere = (f"{CREATE}/accepted", b""), ("something/else", b"")
    again = created, (f"{FROM_REQUEST}/rejected", b"{}")
    messages = [registered, *elsewhere, created, *again, registered]
    line = MagicMock()
    line.receive.side_effect = [SimpleNamespace(topic=topic, payload=payload) for topic, payload in messages]
    monkeypatch.setattr(conversation, "BlockingConnection", lambda _: line)
    files, kept = TlsFiles(tmp_path, tmp_path, tmp_path), MagicMock()
    cloud = conversation.MqttCloud(CloudSettings(host="cloud"), "home-1", files, 5.0)
    cloud.run(Exchange("fleet", "home-1", "csr"), kept)
    kept.assert_called_once_with("cert", None)
    assert [each.args[0] for each in line.send.call_args_list] == [FROM_REQUEST, REGISTER]


@pytest.mark.parametrize("step", ["create", "register"])
def test_a_refusal_says_which_step_and_why(step: str) -> None:
    answer = said(statusCode=403, errorCode="AccessDenied", errorMessage="hook said no")
    answers = [answer] if step == "create" else [CREATED, answer]
    with pytest.raises(RejectedError, match="403 AccessDenied: hook said no") as caught:
        run(*answers, refused=step)
    assert (caught.value.step, caught.value.status, caught.value.code) == (step, 403, "AccessDenied")


def test_another_things_name_is_refused() -> None:
    with pytest.raises(WrongThingError) as caught:
        run(CREATED, said(thingName="home-2"))
    assert (caught.value.thing, caught.value.registered) == ("home-1", "home-2")


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no JSON object"),
        (said(certificatePem="", certificateOwnershipToken="t"), "'certificatePem' is missing"),
        (said(certificatePem="c", certificateOwnershipToken=1), "'certificateOwnershipToken' is missing"),
    ],
)
def test_an_answer_that_breaks_the_promise_is_named(payload: bytes, problem: str) -> None:
    with pytest.raises(AnswerError, match=problem) as caught:
        run(payload)
    assert caught.value.step == "create"


@given(st.binary(), st.sampled_from(["create", ""]))
def test_whatever_is_answered_nothing_but_our_errors_comes_out(payload: bytes, refused: str) -> None:
    with pytest.raises(ProvisioningError):
        run(payload, refused=refused)


@pytest.mark.parametrize(
    ("thing", "common_name"),
    [("home-1:a_b", "home-1:a_b"), ("home-" + "x" * 115, "home-" + "x" * 59)],
    ids=["a short name", "a longer name than a certificate may have"],
)
def test_the_request_is_for_the_key_and_in_the_things_name(thing: str, common_name: str) -> None:
    private_key, signing_request = make_signing_request(thing)
    key = load_pem_private_key(private_key.encode(), None)
    request = x509.load_pem_x509_csr(signing_request.encode())
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp256r1"
    assert request.public_key() == key.public_key()
    assert request.is_signature_valid
    assert request.subject.rfc4514_string() == f"CN={common_name}"


def test_a_device_without_openssl_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KeyMakingError, match=r"install openssl, or set provisioning\.keys to 'cloud'"):
        make_signing_request("home-1")


def test_an_openssl_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "openssl"
    program.write_text("#!/bin/sh\necho no randomness >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(KeyMakingError, match="openssl genpkey: no randomness"):
        make_signing_request("home-1")


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
