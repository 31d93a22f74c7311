"""Check files, proxy and home broker of the settings, without touching the spool or a session of ours."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from shutil import which

from edge.errors import SettingProblem
from edge.health_status import EXPIRES_SOON_S
from edge.settings import CloudSettings, LocalSettings, ProvisioningSettings, Settings
from edge.spool.tables import RECENT_EVENTS
from eventplane_mqtt import Login
from eventplane_mqtt.dial import dial, wait_for
from eventplane_mqtt.endpoint import (
    MAX_PACKET_BYTES,
    DiscoveryError,
    MqttError,
    PasswordFileError,
    is_on_this_device,
    is_private,
    is_socket,
    place,
)
from eventplane_mqtt.tls import read_validity
from parts import load

DEBIAN_PROFILE = Path("/etc/mosquitto/mosquitto.conf")
MOUNTS = Path("/proc/self/mountinfo")


class _NoPassphraseError(Exception):
    """The key is encrypted."""


def file_problems(settings: Settings, now: datetime) -> list[SettingProblem]:
    """Return what is wrong with the files that the settings name, at `now` of the wall clock."""
    found = [
        *_spool(settings.spool),
        *_password("local.password_file", settings.local.login),
        *(each for each in _profile(settings.local) if isinstance(each, SettingProblem)),
    ]
    if (proxy := settings.cloud.proxy) is not None:
        found += _password("cloud.proxy_password_file", proxy.login)
    files = settings.cloud.identity
    if files is None:
        return found
    found += _ca(files.ca)
    if not awaits_provisioning(settings):
        found += _certificate("cloud.certificate", files.certificate, now)
        found += [*_key("cloud.key", files.key), *_pair("cloud.key", files.certificate, files.key)]
    if settings.provisioning is not None:
        found += _claim(settings.provisioning, now)
    return found


def awaits_provisioning(settings: Settings) -> bool:
    """Return whether the device has no certificate yet and is going to get one by itself."""
    files = settings.cloud.identity
    if files is None or settings.provisioning is None:
        return False
    try:
        files.certificate.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)  # of others, reading it will report why
    return False


def proxy_warning(cloud: CloudSettings) -> str | None:
    """Return why the proxy, if there is one, does not connect this device with the cloud's broker now."""
    try:
        if cloud.proxy is not None:
            dial(cloud.endpoint("", (), None), wait_for).close()
    except (OSError, MqttError) as error:
        return str(error)
    return None


def version_warning(local: LocalSettings) -> str | None:
    """Return why the home's broker, if it is up, takes no connection by MQTT 5; None if it does, or need not.

    A stranger asks, without a login: a client of ours would end the connection that the forwarder has.
    """
    from eventplane_mqtt.endpoint import BrokerAddress, Endpoint
    from eventplane_mqtt.probe import BlockingConnection, ConnectionEndedError
    from eventplane_mqtt.profile import load_profile

    if local.protocol != "5":
        return None
    address = BrokerAddress(local.host, local.port)
    if local.profile is not None:
        with suppress(DiscoveryError):
            listeners = load_profile(local.profile)
            choose = load("discovery", "broker").choose
            address = choose(listeners, has_login=local.login is not None)
    stranger = Endpoint(
        address.host,
        address.port,
        client_id=f"{local.client_id}-check",
        clean_session=True,
        keepalive_s=0,
        connect_timeout_s=local.connect_timeout_s,
        tls=address.tls,
        protocol="5",
    )
    connection = BlockingConnection(stranger)
    try:
        connection.wait_connected()
    except ConnectionEndedError as error:
        # Other refusals are of the stranger, not of the version.
        if "protocol" in error.reason:
            return f"{address}: {error.reason}"
    finally:
        connection.close()
    return None


def expires_soon(cloud: CloudSettings, now: datetime) -> str | None:
    """Return a warning if the certificate, which is valid, expires soon."""
    if cloud.identity is None:
        return None
    left = read_validity(cloud.identity.certificate.read_text("latin-1")).end - now
    if left >= timedelta(seconds=EXPIRES_SOON_S):
        return None
    return f"{cloud.identity.certificate} expires in {left.days} days; replace it"


def _spool(spool: Path) -> Iterator[SettingProblem]:
    folder = spool.resolve().parent
    kind, mounted = "", Path("/")
    with suppress(OSError):
        for line in MOUNTS.read_text("utf-8", "replace").splitlines():
            place, _, about = line.partition(" - ")
            at = Path(place.split()[4].replace("\\040", " "))
            if folder.is_relative_to(at) and at.is_relative_to(mounted):
                kind, mounted = about.split()[0], at  # of several at one place the last is seen
    if kind in ("tmpfs", "ramfs"):
        problem = f"{spool} is on {mounted}, a {kind}: a power cut loses every event that was acknowledged"
        yield SettingProblem("spool", problem, "name a place on a disk")


def _password(setting: str, login: Login | None) -> Iterator[SettingProblem]:
    if login is not None:
        try:
            login.password()
        except PasswordFileError as error:
            yield SettingProblem(setting, f"{error.path}: {error.problem}", error.remedy)


def broker_warnings(local: LocalSettings) -> list[str]:
    """Return what the broker's profile costs a forwarder; without `local.profile` Debian's, if there."""
    return [each for each in _profile(local) if isinstance(each, str)]


def _profile(local: LocalSettings) -> Iterator[SettingProblem | str]:
    """Yield what is wrong with the broker's profile, without `local.profile` Debian's, and what it costs."""
    from eventplane_mqtt.profile import Listener, limit_warnings, load_profile

    profile = local.profile
    if profile is None:
        if not is_on_this_device(local.host):
            return
        profile = DEBIAN_PROFILE
    try:
        for each in limit_warnings(profile, RECENT_EVENTS, MAX_PACKET_BYTES):
            yield f"{profile}: {each}"
        listeners = load_profile(profile)
        if local.profile is not None:
            # A build may leave the part out; then there is no such setting.
            load("discovery", "broker").choose(
                listeners, has_login=local.login is not None, name=str(profile)
            )
        elif not (is_socket(local.host) or any(map(Listener(local.port, local.host).overlaps, listeners))):
            at = place(local.host, local.port)
            yield f"{profile}: no listener is at {at}: set local.profile to {profile}"
    except DiscoveryError as error:
        # The forwarder does not follow Debian's, which may be missing, or only for Mosquitto to read.
        is_hidden = error.subject == str(profile) or isinstance(error.__cause__, PermissionError)
        if local.profile is not None or not is_hidden:
            yield f"{profile}: {error}"
            yield SettingProblem("local.profile", f"{error.subject}: {error.problem}", error.remedy)


def _claim(provisioning: ProvisioningSettings, now: datetime) -> Iterator[SettingProblem]:
    certificate, key = provisioning.claim_certificate, provisioning.claim_key
    # Only root may be able to read them: systemd passes them to the provisioning (LoadCredential=).
    if not _is_withheld(certificate):
        yield from _certificate("provisioning.claim_certificate", certificate, now)
    if not _is_withheld(key):
        yield from _key("provisioning.claim_key", key)
    yield from _pair("provisioning.claim_key", certificate, key)
    if provisioning.keys == "device" and which("openssl") is None:
        remedy = "install it, or set provisioning.keys to 'cloud'"
        yield SettingProblem("provisioning.keys", "there is no openssl program to make a key with", remedy)


def _is_withheld(file: Path) -> bool:
    try:
        file.open("rb").close()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def _ca(file: Path) -> Iterator[SettingProblem]:
    remedy = "name a PEM file with the certificates that vouch for the cloud's broker"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=str(file))
    except ssl.SSLError as error:
        yield SettingProblem("cloud.ca", f"{file}: no certificate authority in it ({error.reason})", remedy)
    except OSError as error:
        yield _unreadable("cloud.ca", file, error, remedy)


def _certificate(setting: str, file: Path, now: datetime) -> Iterator[SettingProblem]:
    remedy = "name a certificate, a PEM file"
    try:
        validity = read_validity(file.read_text("latin-1"))
    except ValueError as error:
        yield SettingProblem(setting, f"{file}: {error}", remedy)
    except OSError as error:
        yield _unreadable(setting, file, error, remedy)
    else:
        if now >= validity.end:
            yield SettingProblem(setting, f"{file} expired on {validity.end:%Y-%m-%d}", "replace it")
        elif now < validity.start:
            problem = f"{file} is not valid before {validity.start:%Y-%m-%d %H:%M} UTC"
            yield SettingProblem(setting, problem, "see that the device's clock is right")


def _key(setting: str, file: Path) -> Iterator[SettingProblem]:
    try:
        found = file.stat()
        file.read_bytes()
    except OSError as error:
        yield _unreadable(setting, file, error, "name the certificate's private key, a PEM file")
    else:
        if not is_private(found):
            yield SettingProblem(setting, f"{file}: others may use it", f"chmod 600 {file}")


def _pair(setting: str, certificate: Path, key: Path) -> Iterator[SettingProblem]:
    def refuse() -> str:
        raise _NoPassphraseError

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key, refuse)
    except _NoPassphraseError:
        yield SettingProblem(setting, f"{key} has a passphrase", "store it without one")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            problem, remedy = f"{key} does not belong to {certificate}", "name the pair"
        else:
            problem = f"{certificate} and {key} cannot be used ({error.reason or error})"
            remedy = "name a certificate and its private key, PEM files"
        yield SettingProblem(setting, problem, remedy)
    except OSError:
        return  # reported for the file that cannot be read


def _unreadable(setting: str, file: Path, error: OSError, remedy: str) -> SettingProblem:
    return SettingProblem(setting, f"{file}: {error.strerror or error}", remedy)
