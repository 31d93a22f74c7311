"""Renews the device's certificate when it is due, so that the device always has a usable one.

Key and certificate are in one file, so that one rename replaces both: after a power cut at any moment there
is the old pair or the new one. New pairs are in files beside it until a connection with one of them has
succeeded, so that the device has the one that the cloud put in force.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from edge import durable
from eventplane_mqtt.tls import Validity, read_validity
from parts.provisioning import (
    IdentityFileError,
    KeyMakingError,
    NotAcceptedError,
    OfflineError,
    RejectedError,
    WrongThingError,
)
from parts.provisioning.exchange import Exchange, Keep

_log = logging.getLogger(__name__)

MOST_TRIES = 3
"""Attempts that try the unproven pairs before another is requested: a policy that was just attached is not in
force everywhere at once."""

MOST_UNPROVEN = 8
"""Unproven pairs that are kept. Each is left by a registration without an answer, after `MOST_TRIES` attempts
in which none of the others connected."""

_OPENSSL_TIMEOUT_S = 60.0
"""An elliptic curve key takes milliseconds; a device that has just booted may lack randomness."""

_NAME_CHARACTERS = 64
"""The longest common name in X.509 (RFC 5280, ub-common-name); a thing's name may be longer. Only people read
it: the template and the policies know the device by its client id."""

_UNPROVEN = r"\.next(?:-([0-9]+))?"
"""The suffix of an unproven pair's file. The oldest has no number: 0.3.0 knows only this one."""


class Pairs:
    """The pair at `path` (PEM: key, certificate), and newer ones beside it that are not proven yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the pair against other processes. Raises `IdentityFileError`."""
        with contextlib.ExitStack() as held:
            with self._named_errors():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                taken = IdentityFileError(self.path, "another provisioning process is running")
                held.enter_context(durable.only_one(self.path, taken))
            yield

    def current(self) -> str | None:
        """Return the pair in use, None if there is none."""
        try:
            return self.path.read_text("latin-1")
        except (OSError, ValueError):
            # Absent, unreadable or damaged: in each case it cannot be used to connect.
            return None

    def unproven(self) -> list[Path]:
        """Return the files of the unproven pairs, the oldest first."""
        return [each for _, each in durable.numbered(self.path, _UNPROVEN)]

    def stage(self, private_key: str, certificate: str) -> Path:
        """Store a pair as the newest unproven one, durably; return its file. Raises `IdentityFileError`."""
        kept = durable.numbered(self.path, _UNPROVEN)
        number = f"-{kept[-1][0] + 1}" if kept else ""
        staged = durable.beside(self.path, f".next{number}")
        with self._named_errors():
            durable.write(staged, f"{private_key.strip()}\n{certificate.strip()}\n".encode())
        # The first stays, as in the registry: those that were asked for later may all have been refused.
        self.drop(self.unproven()[1 : 1 - MOST_UNPROVEN])
        return staged

    def drop(self, pairs: list[Path]) -> None:
        """Delete unproven `pairs`, durably. Raises `IdentityFileError`."""
        if not pairs:
            return
        with self._named_errors():
            for each in pairs:
                each.unlink(missing_ok=True)
            durable.sync(self.path.parent)

    def adopt(self, proven: Path) -> None:
        """Replace the pair in use by the `proven` one, and delete older ones. Raises `IdentityFileError`.

        Newer ones stay: the proven one may be in force only until they are.
        """
        unproven = self.unproven()
        # First: after a power cut an older one must not be tried in the place of the proven one.
        self.drop(unproven[: unproven.index(proven)])
        with self._named_errors():
            durable.move(proven, self.path)

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise IdentityFileError(self.path, str(error.strerror or error)) from error


class Provisioner(Protocol):
    """See `parts.provisioning.conversation.MqttCloud`."""

    def run(self, exchange: Exchange, keep: Keep, pair: Path | None = None) -> None: ...

    def try_pair(self, pair: Path) -> None: ...

    def accepts(self, pair: Path | None) -> bool: ...


class Renewed(StrEnum):
    """The result of an attempt."""

    VALID = "the certificate needs no renewal"
    RENEWED = "a new certificate is in use"


def is_due(validity: Validity, now_s: float, max_age_s: float) -> bool:
    """Return whether less than a third of the lifetime is left, or the certificate is too old.

    AWS IoT's own certificates are valid until 2049, so for them only the age counts. Before the start of its
    validity the clock is wrong, and nothing is due.
    """
    start_s, end_s = validity.start.timestamp(), validity.end.timestamp()
    return end_s - now_s < (end_s - start_s) / 3 or now_s - start_s > max_age_s


class Renewal:
    """The attempts of one process.

    `make_key` generates a private key on the device, and the request for its certificate (both PEM); None:
    the cloud generates it.
    """

    def __init__(
        self,
        identity: Pairs,
        cloud: Provisioner,
        template: str,
        thing: str,
        max_age_s: float,
        make_key: Callable[[str], tuple[str, str]] | None,
    ) -> None:
        self._identity = identity
        self._cloud = cloud
        self._template = template
        self._thing = thing
        self._max_age_s = max_age_s
        self._make_key = make_key
        self.refusals = 0
        """Attempts in a row in which no unproven pair connected."""

    def attempt(self, now_s: float) -> Renewed:
        """Renew the certificate if it is due at `now_s` (Unix seconds). Raises `ProvisioningError`."""
        if self._identity.unproven():
            # Left by a power cut, or by an attempt whose certificate was not in force yet.
            try:
                return self._prove()
            except NotAcceptedError:
                self.refusals += 1
                if self.refusals < MOST_TRIES:
                    raise
        if self._is_due(now_s):
            self._obtain()
        elif self._is_refused():
            # Not with the pair: a line that came back meanwhile would make it an early renewal.
            self._ask(None)
        else:
            return Renewed.VALID
        return self._prove()

    def _is_due(self, now_s: float) -> bool:
        pair = self._identity.current()
        if pair is None:
            _log.info("there is no certificate yet")
            return True
        try:
            validity = read_validity(pair)
        except ValueError as error:
            _log.warning("%s: %s; it is replaced", self._identity.path, error)
            return True
        _log.info("the certificate is valid for %d more days", (validity.end.timestamp() - now_s) // 86_400)
        return is_due(validity, now_s, self._max_age_s)

    def _is_refused(self) -> bool:
        """Whether the cloud accepts the claim but not the pair in use: somebody condemned it."""
        if self._cloud.accepts(self._identity.path) or not self._cloud.accepts(None):
            return False
        _log.warning("the cloud refuses the certificate; asking for another with the claim")
        return True

    def _obtain(self) -> None:
        """Request a pair as the device; without a usable certificate, as the claim."""
        if self._identity.current() is not None:
            try:
                return self._ask(self._identity.path)
            except (OfflineError, RejectedError) as error:
                _log.warning("no new certificate with the present one (%s); trying with the claim", error)
        return self._ask(None)

    def _ask(self, pair: Path | None) -> None:
        own_key, request = self._make_key(self._thing) if self._make_key else (None, None)
        exchange = Exchange(self._template, self._thing, request)
        staged: list[Path] = []

        def store(certificate: str, private_key: str | None) -> None:
            staged.append(self._identity.stage(own_key or private_key or "", certificate))
            self.refusals = 0

        try:
            self._cloud.run(exchange, store, pair)
        except (RejectedError, WrongThingError):
            # It was never tried, and will not be: it takes no room from those that may be in force.
            self._identity.drop(staged)
            raise

    def _prove(self) -> Renewed:
        """Use the newest unproven pair that connects. Raises `NotAcceptedError` with the newest's reason."""
        refusals: list[OfflineError] = []
        for pair in reversed(self._identity.unproven()):
            try:
                self._cloud.try_pair(pair)
            except OfflineError as error:
                refusals.append(error)
            else:
                self._identity.adopt(pair)
                return Renewed.RENEWED
        raise NotAcceptedError(refusals[0].reason) from refusals[0]


def make_signing_request(thing: str) -> tuple[str, str]:
    """Generate a P-256 key and a request for its certificate in the name of `thing`, both PEM.

    The standard library can do neither, so the openssl program does. The key is only in pipes and memory
    until `Pairs.stage` writes it. Raises `KeyMakingError`.
    """
    key = _openssl(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"])
    subject = f"/CN={thing[:_NAME_CHARACTERS]}"
    request = _openssl(["req", "-new", "-key", "/dev/stdin", "-subj", subject], key)
    return key, request


def _openssl(arguments: list[str], stdin: str = "") -> str:
    try:
        done = subprocess.run(
            ["openssl", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=True,
            timeout=_OPENSSL_TIMEOUT_S,
        )
    except FileNotFoundError as error:
        raise KeyMakingError("the openssl program is missing") from error
    except subprocess.CalledProcessError as error:
        raise KeyMakingError(f"openssl {arguments[0]}: {error.stderr.strip()}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KeyMakingError(f"openssl {arguments[0]}: {error}") from error
    return done.stdout
