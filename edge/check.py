"""Whether the device could run like this (`--check`), without touching its spool or a broker."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from edge.certificate import read_validity
from edge.errors import SettingProblem
from edge.health.verdict import EXPIRES_SOON_S
from edge.mqtt import TlsFiles
from edge.private_file import is_private
from edge.settings import CloudSettings, Settings


class _NoPassphraseError(Exception):
    """The key is encrypted."""


def identity_problems(cloud: CloudSettings, now: datetime, *, awaited: bool = False) -> list[SettingProblem]:
    """What is wrong with the certificate files at `now`, the wall clock's time.

    Of an `awaited` certificate nothing is there yet, except whom the device trusts.
    """
    files = cloud.identity
    if files is None:
        return []
    if awaited:
        return [*_ca(files.ca)]
    return [*_ca(files.ca), *_certificate(files.certificate, now), *_key(files.key), *_pair(files)]


def awaits_provisioning(settings: Settings) -> bool:
    """Whether the device has no certificate yet, and is going to get one by itself."""
    files = settings.cloud.identity
    return files is not None and settings.provisioning is not None and not files.certificate.exists()


def expires_soon(cloud: CloudSettings, now: datetime) -> str | None:
    """A warning when the certificate, which is good, will not be for much longer."""
    if cloud.identity is None:
        return None
    left = read_validity(cloud.identity.certificate.read_text("ascii")).end - now
    return (
        f"{cloud.identity.certificate} expires in {left.days} days; replace it"
        if left < timedelta(seconds=EXPIRES_SOON_S)
        else None
    )


def _ca(file: Path) -> Iterator[SettingProblem]:
    remedy = "name a PEM file with the certificates that vouch for the cloud's broker"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=str(file))
    except ssl.SSLError as error:
        yield SettingProblem("cloud.ca", f"{file}: no certificate authority in it ({error.reason})", remedy)
    except OSError as error:
        yield _unreadable("cloud.ca", file, error, remedy)


def _certificate(file: Path, now: datetime) -> Iterator[SettingProblem]:
    setting = "cloud.certificate"
    try:
        validity = read_validity(file.read_text("ascii"))
    except ValueError as error:
        yield SettingProblem(setting, f"{file}: {error}", "name the thing's certificate, a PEM file")
    except OSError as error:
        yield _unreadable(setting, file, error, "name the thing's certificate, a PEM file")
    else:
        if now >= validity.end:
            yield SettingProblem(setting, f"{file} expired on {validity.end:%Y-%m-%d}", "replace it")
        elif now < validity.start:
            problem = f"{file} is not valid before {validity.start:%Y-%m-%d %H:%M} UTC"
            yield SettingProblem(setting, problem, "see that the device's clock is right")


def _key(file: Path) -> Iterator[SettingProblem]:
    try:
        found = file.stat()
        file.read_bytes()
    except OSError as error:
        yield _unreadable("cloud.key", file, error, "name the certificate's private key, a PEM file")
    else:
        if not is_private(found):
            yield SettingProblem("cloud.key", f"{file}: others may use it", f"chmod 600 {file}")


def _pair(files: TlsFiles) -> Iterator[SettingProblem]:
    def refuse() -> str:
        raise _NoPassphraseError

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(files.certificate, files.key, refuse)
    except _NoPassphraseError:
        yield SettingProblem("cloud.key", f"{files.key} has a passphrase", "store it without one")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            problem, remedy = f"{files.key} does not belong to {files.certificate}", "name the pair"
        else:
            problem = f"{files.certificate} and {files.key} cannot be used ({error.reason or error})"
            remedy = "name a certificate and its private key, PEM files"
        yield SettingProblem("cloud.key", problem, remedy)
    except OSError:
        return  # said of the file that cannot be read


def _unreadable(setting: str, file: Path, error: OSError, remedy: str) -> SettingProblem:
    return SettingProblem(setting, f"{file}: {error.strerror or error}", remedy)


def utc_now() -> datetime:
    """The wall clock's time."""
    return datetime.now(UTC)
