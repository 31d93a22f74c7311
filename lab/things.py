"""Devices of the cloud: an IoT thing for every home, with its own key and certificate.

And a certificate authority of this machine, for brokers and endpoints that it runs.
"""

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lab.cloud import CloudEndpoint
from lab.network import LOOPBACK


@dataclass(frozen=True)
class Thing:
    """A provisioned device: its name (also its MQTT client id) and the files that let it connect.

    `host` and `port` are the cloud's own; a home behind a `lab.network.NetworkLink` dials the link instead.
    """

    name: str
    certificate: Path
    key: Path
    ca: Path
    host: str
    port: int


def provision(cloud: CloudEndpoint, name: str, *, policy: str, directory: Path) -> Thing:
    """Register thing `name` with a fresh certificate that carries the IoT policy called `policy`.

    Its files go to `directory`, the key readable by us only. Raises botocore's `ClientError` if the cloud
    refuses, for instance because there is no such policy.
    """
    iot = cloud.client("iot")
    iot.create_thing(thingName=name)
    identity = iot.create_keys_and_certificate(setAsActive=True)
    iot.attach_policy(policyName=policy, target=identity["certificateArn"])
    iot.attach_thing_principal(thingName=name, principal=identity["certificateArn"])

    directory.mkdir(parents=True, exist_ok=True)
    thing = Thing(
        name=name,
        certificate=directory / "cert.pem",
        key=directory / "key.pem",
        ca=directory / "ca.pem",
        host=cloud.mqtt_host,
        port=cloud.mqtt_port,
    )
    thing.certificate.write_text(identity["certificatePem"])
    thing.ca.write_text(cloud.ca_pem)
    _write_secret(thing.key, identity["keyPair"]["PrivateKey"])
    return thing


def _write_secret(path: Path, text: str) -> None:
    """Write a file that is never readable by others."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


_HOUR = timedelta(hours=1)
_LIFE = timedelta(days=60)
# Of certificates and revocation lists. Python 3.13 trusts no authority that does not say so.
_SIGNS = x509.KeyUsage(False, False, False, False, False, True, True, False, False)


@dataclass(frozen=True)
class DeviceIdentity:
    """PEM files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates for hosts at `addresses`; `ca` is the PEM file of its own."""

    def __init__(self, directory: Path, addresses: Sequence[str] = ("127.0.0.1",)) -> None:
        self._directory = directory
        self._addresses = [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
        directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"authority of {directory.name}")
        builder = self._builder(self._name, self._key.public_key(), authority=True)
        certificate = builder.add_extension(_SIGNS, critical=True).sign(self._key, hashes.SHA256())
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, common_name: str, age: timedelta = timedelta()) -> DeviceIdentity:
        """A certificate for `common_name` at the addresses; with an `age`, one for an hour that long ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        addresses = x509.SubjectAlternativeName(self._addresses)
        certificate = (
            self._builder(_name(common_name), key.public_key(), age=age, life=_HOUR if age else _LIFE)
            .add_extension(addresses, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        identity = DeviceIdentity(
            self._directory / f"{common_name}.crt", self._directory / f"{common_name}.key"
        )
        identity.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        identity.key.touch(0o600)
        identity.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return identity

    def thing(self, name: str, port: int) -> Thing:
        """A device `name` with a certificate, for a broker on 127.0.0.1:`port`."""
        identity = self.issue(name)
        return Thing(name, identity.certificate, identity.key, self.ca, LOOPBACK, port)

    def sign(self, request: str, life: timedelta) -> str:
        """A certificate in PEM, valid from an hour ago for `life` from now, for a signing request."""
        asked = x509.load_pem_x509_csr(request.encode())
        key = asked.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise TypeError("only requests with a key on an elliptic curve are signed")
        builder = self._builder(asked.subject, key, life=life)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def _builder(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        authority: bool = False,
        age: timedelta = timedelta(),
        life: timedelta = _LIFE,
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC) - age
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _HOUR)
            .not_valid_after(now + life)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
