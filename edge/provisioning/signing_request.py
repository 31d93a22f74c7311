"""A private key that never leaves the device, and the request for its certificate: by the openssl program.

Python's standard library can make neither. The key is in pipes and memory until `Identity.stage` writes it.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from edge.provisioning.errors import KeyMakingError

_TIMEOUT_S = 60.0
"""An elliptic curve key takes milliseconds; a device that has just been switched on may lack randomness."""

_NAME_CHARACTERS = 64
"""X.509 allows a common name no more (RFC 5280, ub-common-name), a thing's name may be longer. Only people
read it: who the device is, the template and the policies find out by its client id."""


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """Both in PEM."""

    private_key: str
    request: str


def make_signing_request(thing: str) -> SigningRequest:
    """A new P-256 key and a request for it in the name of `thing`. Raises `KeyMakingError`."""
    key = _openssl(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"])
    subject = f"/CN={thing[:_NAME_CHARACTERS]}"
    request = _openssl(["req", "-new", "-key", "/dev/stdin", "-subj", subject], key)
    return SigningRequest(key, request)


def _openssl(arguments: list[str], given: str = "") -> str:
    try:
        done = subprocess.run(
            ["openssl", *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=True,
            timeout=_TIMEOUT_S,
        )
    except FileNotFoundError as error:
        raise KeyMakingError("there is no openssl program") from error
    except subprocess.CalledProcessError as error:
        raise KeyMakingError(f"openssl {arguments[0]}: {error.stderr.strip()}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KeyMakingError(f"openssl {arguments[0]}: {error}") from error
    return done.stdout
