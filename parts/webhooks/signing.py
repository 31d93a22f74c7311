"""Signatures of requests, and their keys from Secrets Manager: during a rotation also the previous one.

The signature is that of Standard Webhooks 1.0.0: HMAC-SHA256 over id, time and body.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.errors import EventPlaneError
from lambdas.common.aws import error_code
from lambdas.common.log import logger
from lambdas.common.system import Clock

KEEP_MS: Final = 300_000
"""How long keys are used before they are asked for again, milliseconds: a rotation is seen after that."""

MIN_KEY_BYTES: Final = 24
"""Least bytes of a key (Standard Webhooks)."""

_STAGES: Final = ("AWSCURRENT", "AWSPREVIOUS")
_PREFIX: Final = "whsec_"


class SigningKeyError(EventPlaneError):
    """There is no key to sign with. `secret` is where one should be."""

    secret: str
    problem: str
    message = (
        f"secret {{secret}}: {{problem}}; put a key of {MIN_KEY_BYTES} bytes or more, as base64, into it"
    )


Keys: TypeAlias = Callable[[], tuple[bytes, ...]]
"""Gives all keys to sign with, the newest first. Raises `SigningKeyError`."""


class SigningKeys:
    """The keys in the secret called `secret`, read through a boto3 Secrets Manager client."""

    def __init__(self, client: Any, secret: str, clock: Clock) -> None:
        self._client = client
        self._secret = secret
        self._clock = clock
        self._keys: tuple[bytes, ...] = ()
        self._read_at_ms = 0

    def get(self) -> tuple[bytes, ...]:
        """All keys to sign with, the newest first. Raises `SigningKeyError`.

        Known keys stay in use while there are no better ones to be had.
        """
        now_ms = self._clock()
        if not self._keys or now_ms - self._read_at_ms >= KEEP_MS:
            try:
                self._keys = self._read()
            except SigningKeyError as error:
                if not self._keys:
                    raise
                logger.warning("signing keys could not be read again; the known ones stay", error=str(error))
            # Also after a failure: with Secrets Manager away, asking would cost every event seconds.
            self._read_at_ms = now_ms
        return self._keys

    def _read(self) -> tuple[bytes, ...]:
        try:
            keys = [key for stage in _STAGES if (key := self._key(stage))]
        except (ClientError, BotoCoreError) as error:
            raise SigningKeyError(self._secret, f"it could not be read ({error})") from error
        if not keys:
            raise SigningKeyError(self._secret, "no version of it is a key")
        return tuple(keys)

    def _key(self, stage: str) -> bytes | None:
        """The key of a stage; None where there is none, or what is there cannot be one."""
        try:
            value = self._client.get_secret_value(SecretId=self._secret, VersionStage=stage)["SecretString"]
            key = base64.b64decode(value.removeprefix(_PREFIX), validate=True)
        except ClientError as error:
            if error_code(error) != "ResourceNotFoundException":
                raise
            return None
        except (KeyError, binascii.Error, ValueError):
            key = b""
        if len(key) < MIN_KEY_BYTES:
            logger.error("a version of the secret is no signing key", secret=self._secret, stage=stage)
            return None
        return key


def subscription_key(master: bytes, route: str) -> bytes:
    """Derive the key of the subscription behind `route`: its owner can forge nothing for another."""
    return hmac.new(master, route.encode(), hashlib.sha256).digest()


def signature_headers(keys: Iterable[bytes], id: str, time_s: int, body: bytes) -> dict[str, str]:
    """Return the headers that sign `body`, with a signature by each of `keys`; `time_s` in Unix seconds.

    The time of the attempt is signed as well, so that a receiver can refuse what is replayed later.
    """
    content = f"{id}.{time_s}.".encode() + body
    signatures = (base64.b64encode(hmac.digest(key, content, "sha256")).decode() for key in keys)
    return {
        "webhook-id": id,
        "webhook-timestamp": str(time_s),
        "webhook-signature": " ".join(f"v1,{each}" for each in signatures),
    }
