"""Renews the device's certificate when it is due, so that the device always has a usable one.

Key and certificate are in one file, so that one rename replaces both: after a power cut at any moment there
is the old pair or the new one. The next pair is in a file beside it until a connection with it succeeded.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from edge import durable
from edge.certificate import Validity, read_validity
from edge.provisioning import (
    IdentityFileError,
    KeyMakingError,
    NotAcceptedError,
    RejectedError,
    UnreachableError,
)
from edge.provisioning.exchange import Created, Exchange

_log = logging.getLogger(__name__)

MOST_TRIES = 3
"""Connections that are tried with a registered pair, one in each attempt, before another pair is requested: a
policy that was just attached is not in force everywhere at once."""

_OPENSSL_TIMEOUT_S = 60.0
"""An elliptic curve key takes milliseconds; a device that has just booted may lack randomness."""

_NAME_CHARACTERS = 64
"""The longest common name in X.509 (RFC 5280, ub-common-name); a thing's name may be longer. Only people read
it: the template and the policies know the device by its client id."""


class Identity:
    """The pair at `path` (PEM: key, certificate), and the one at `next_path` that is not proven yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.next_path = path.with_name(path.name + ".next")

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

    def stage(self, private_key: str, certificate: str) -> None:
        """Store a pair beside the one in use, durably. Raises `IdentityFileError`."""
        with self._named_errors():
            durable.write(self.next_path, f"{private_key.strip()}\n{certificate.strip()}\n".encode())

    def adopt(self) -> None:
        """Replace the pair in use by the staged one. Raises `IdentityFileError`."""
        with self._named_errors():
            durable.move(self.next_path, self.path)

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise IdentityFileError(self.path, str(error.strerror or error)) from error


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """A private key and the request for its certificate, both PEM."""

    private_key: str
    request: str


class Cloud(Protocol):
    """See `edge.provisioning.conversation.MqttCloud`."""

    def run(
        self, exchange: Exchange, on_created: Callable[[Created], None], pair: Path | None = None
    ) -> None: ...

    def try_pair(self, pair: Path) -> None: ...


class Outcome(StrEnum):
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
    """The attempts of one process. `make_key` generates the key on the device; None: the cloud does."""

    def __init__(
        self,
        identity: Identity,
        cloud: Cloud,
        template: str,
        thing: str,
        max_age_s: float,
        make_key: Callable[[str], SigningRequest] | None,
    ) -> None:
        self._identity = identity
        self._cloud = cloud
        self._template = template
        self._thing = thing
        self._max_age_s = max_age_s
        self._make_key = make_key
        self._refusals = 0

    def attempt(self, now_s: float) -> Outcome:
        """Renew the certificate if it is due at `now_s` (Unix seconds). Raises `ProvisioningError`."""
        if self._identity.next_path.exists():
            # Left by a power cut, or by an attempt whose certificate was not in force yet.
            try:
                return self._prove()
            except NotAcceptedError:
                self._refusals += 1
                if self._refusals < MOST_TRIES:
                    raise
        elif not self._is_due(now_s):
            return Outcome.VALID
        self._obtain()
        self._refusals = 0
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

    def _obtain(self) -> None:
        """Request a pair as the device; without a usable certificate, as the claim."""
        if self._identity.current() is not None:
            try:
                return self._ask(self._identity.path)
            except (UnreachableError, RejectedError) as error:
                _log.warning("no new certificate with the present one (%s); trying with the claim", error)
        return self._ask(None)

    def _ask(self, pair: Path | None) -> None:
        own = self._make_key(self._thing) if self._make_key else None
        exchange = Exchange(self._template, self._thing, own.request if own else None)

        def store(created: Created) -> None:
            private_key = own.private_key if own else created.private_key
            self._identity.stage(private_key or "", created.certificate)

        self._cloud.run(exchange, store, pair)

    def _prove(self) -> Outcome:
        try:
            self._cloud.try_pair(self._identity.next_path)
        except UnreachableError as error:
            raise NotAcceptedError(error.reason) from error
        self._identity.adopt()
        return Outcome.RENEWED


def make_signing_request(thing: str) -> SigningRequest:
    """Generate a P-256 key and a request for its certificate in the name of `thing`. Raises `KeyMakingError`.

    The standard library can do neither, so the openssl program does. The key is only in pipes and memory
    until `Identity.stage` writes it.
    """
    key = _openssl(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"])
    subject = f"/CN={thing[:_NAME_CHARACTERS]}"
    request = _openssl(["req", "-new", "-key", "/dev/stdin", "-subj", subject], key)
    return SigningRequest(key, request)


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
