"""Decides whether the device needs a new certificate, and brings it about without ever being without one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from edge.certificate import Validity, read_validity
from edge.provisioning.errors import NotAcceptedError, RejectedError, UnreachableError
from edge.provisioning.exchange import Created, Exchange
from edge.provisioning.identity import Identity
from edge.provisioning.signing_request import SigningRequest

_log = logging.getLogger(__name__)

PATIENCE = 3
"""Connections that a registered pair gets, over as many attempts, before another is asked for: a policy that
was attached this moment is not in force everywhere at once."""


class Cloud(Protocol):
    """See `edge.provisioning.conversation.Cloud`."""

    def converse(
        self, exchange: Exchange, on_created: Callable[[Created], None], pair: Path | None = None
    ) -> None: ...

    def try_pair(self, pair: Path) -> None: ...


class Outcome(StrEnum):
    """How an attempt ended."""

    VALID = "the certificate is good for a while"
    RENEWED = "a new certificate is in use"


def is_due(validity: Validity, now_s: float, max_age_s: float) -> bool:
    """Whether it is time for a new certificate: less than a third of its life is left, or it is too old.

    AWS IoT's own certificates live until 2049, so that for them only `max_age_s` means anything. Before its
    start the clock is wrong, and nothing is due.
    """
    start_s, end_s = validity.start.timestamp(), validity.end.timestamp()
    return end_s - now_s < (end_s - start_s) / 3 or now_s - start_s > max_age_s


class Renewal:
    """The attempts of one process. `make_key` makes the key on the device; None leaves that to the cloud."""

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
        """Try at `now_s`, seconds since 1970. Raises `ProvisioningError`; the next one goes on from there."""
        if self._identity.has_next():
            # From before a power cut, or from an attempt whose certificate was not in force yet.
            try:
                return self._prove()
            except NotAcceptedError:
                self._refusals += 1
                if self._refusals < PATIENCE:
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
            _log.warning("%s: %s; it will be replaced", self._identity.path, error)
            return True
        _log.info("the certificate is valid for %d more days", (validity.end.timestamp() - now_s) // 86_400)
        return is_due(validity, now_s, self._max_age_s)

    def _obtain(self) -> None:
        """With the present pair, which is the device's alone; the claim is for one that has none of use."""
        if self._identity.current() is not None:
            try:
                return self._ask(self._identity.path)
            except (UnreachableError, RejectedError) as error:
                _log.warning("the present certificate gets no other (%s); asking with the claim", error)
        return self._ask(None)

    def _ask(self, pair: Path | None) -> None:
        own = self._make_key(self._thing) if self._make_key else None
        exchange = Exchange(self._template, self._thing, own.request if own else None)

        def store(created: Created) -> None:
            private_key = own.private_key if own else created.private_key
            self._identity.stage(private_key or "", created.certificate)

        self._cloud.converse(exchange, store, pair)

    def _prove(self) -> Outcome:
        try:
            self._cloud.try_pair(self._identity.next_path)
        except UnreachableError as error:
            raise NotAcceptedError(error.reason) from error
        self._identity.adopt()
        return Outcome.RENEWED
