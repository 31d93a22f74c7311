"""What is wrong with settings together, each of which is good by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edge.errors import SettingProblem
from edge.mqtt.endpoint import is_on_this_device
from edge.settings_reader import variable_of


def conflicts(
    local: Mapping[str, Any], cloud: Mapping[str, Any], *, provisions: bool
) -> Iterator[SettingProblem]:
    """Of the tables `[local]` and `[cloud]`, defaults included; `provisions`: there is a `[provisioning]`."""
    yield from _local(local)
    yield from _cloud(cloud)
    if provisions:
        yield from _identity(cloud)


def _local(local: Mapping[str, Any]) -> Iterator[SettingProblem]:
    for name, other in (("username", "password_file"), ("password_file", "username")):
        if local[name] is None and local[other] is not None:
            remedy = f"set it, or {variable_of(f'local.{name}')}, or remove local.{other}"
            yield SettingProblem(f"local.{name}", "it is missing", remedy)
    if local["password_file"] is not None and _is_elsewhere(local["host"]):
        problem = f"{local['host']} is not on this device, and would get a password over the network"
        yield SettingProblem("local.host", problem, "use the broker at 127.0.0.1: there is no TLS to others")


def _cloud(cloud: Mapping[str, Any]) -> Iterator[SettingProblem]:
    for name in ("ca", "certificate", "key"):
        if cloud["tls"] and cloud[name] is None:
            remedy = f"set it, or {variable_of(f'cloud.{name}')}, to a path"
            yield SettingProblem(f"cloud.{name}", "it is missing", remedy)
    if not cloud["tls"] and _is_elsewhere(cloud["host"]):
        remedy = "set it to true, or use a broker at 127.0.0.1"
        yield SettingProblem("cloud.tls", f"{cloud['host']} is not on this device", remedy)
    if cloud["rule"] is None and "{rule}" in cloud["topic"]:
        remedy = "to a topic rule's name, or cloud.topic to one without {rule}"
        remedy = f"set it, or {variable_of('cloud.rule')}, {remedy}"
        yield SettingProblem("cloud.rule", "it is missing", remedy)


def _identity(cloud: Mapping[str, Any]) -> Iterator[SettingProblem]:
    """Why the device could not get a certificate, or replace the one it has."""
    if not cloud["tls"]:
        yield SettingProblem("cloud.tls", "a certificate is for TLS only", "set it to true")
    elif None not in (cloud["certificate"], cloud["key"]) and cloud["certificate"] != cloud["key"]:
        remedy = "name one file for both: only then are they replaced in one step"
        yield SettingProblem("cloud.key", "it is another file than cloud.certificate", remedy)


def _is_elsewhere(host: Any) -> bool:
    """Of a host that is missing nothing is known."""
    return isinstance(host, str) and not is_on_this_device(host)
