"""The Debian package: Debian's tools read it, its bytes do not vary, and its parts agree.

tests/device installs, upgrades, removes and purges it.
"""

import re
import subprocess
from pathlib import Path

import pytest

from lab.tools.debian_package import DEBIAN, NAME, PROGRAM, files, write_package
from lab.tools.device_image import VERSION, units

UNITS = {each.name for each in units()}
SCRIPTS = ("postinst", "postrm", "prerm")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("deb") / "package.deb"
    write_package(output, b"#!/bin/true\n")
    return output


def dpkg_deb(*arguments: object) -> str:
    return subprocess.run(
        ["dpkg-deb", *map(str, arguments)], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.source("P7")
def test_debian_reads_it_and_finds_who_it_needs(package: Path) -> None:
    assert dpkg_deb("--field", package, "Package", "Version", "Architecture").splitlines() == [
        f"Package: {NAME}",
        f"Version: {VERSION}",
        "Architecture: all",
    ]
    needed = dpkg_deb("--field", package, "Depends")
    assert {"python3 (>= 3.11)", "mosquitto (>= 2.0)"} <= {each.strip() for each in needed.split(",")}


def test_builds_are_reproducible(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    write_package(tmp_path / "again.deb", b"#!/bin/true\n")
    assert (tmp_path / "again.deb").read_bytes() == package.read_bytes()


def test_it_installs_every_unit_the_program_and_its_command(package: Path, tmp_path: Path) -> None:
    dpkg_deb("--extract", package, tmp_path)
    system = tmp_path / "usr/lib/systemd/system"
    assert {each.name for each in system.iterdir()} == UNITS | {"mosquitto.service.d"}
    check = (system / "mosquitto.service.d/eventplane.conf").read_text()
    # A check that fails is no reason (-) not to start the broker.
    assert f"ExecStartPre=-/usr/bin/python3 -I -S /{PROGRAM} broker-database" in check
    assert (tmp_path / "usr/bin" / NAME).resolve() == tmp_path / PROGRAM
    assert (tmp_path / PROGRAM).stat().st_mode & 0o777 == 0o755
    owners = {line.split()[1] for line in dpkg_deb("--contents", package).splitlines()}
    assert owners == {"root/root"}


def test_a_build_without_a_part_has_no_unit_of_it() -> None:
    installed = {
        Path(path).name
        for path in files(b"", ["discovery", "provisioning", "questions", "telemetry"])
        if "/system/" in path
    }
    assert installed == {"eventplane-forwarder.service", "eventplane.conf"}


def test_what_an_administrator_edits_is_a_conffile(package: Path, tmp_path: Path) -> None:
    dpkg_deb("--control", package, tmp_path)
    conffiles = (tmp_path / "conffiles").read_text().split()
    assert conffiles == ["/etc/eventplane/forwarder.toml", "/etc/mosquitto/eventplane.conf"]
    assert set(conffiles) == {f"/{path}" for path in files(b"") if path.startswith("etc/")}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_are_shell_and_name_units_that_exist(name: str) -> None:
    script = DEBIAN / name
    subprocess.run(["sh", "-n", str(script)], check=True)
    named = set(re.findall(r"eventplane-\w+\.(?:service|timer)", script.read_text()))
    assert named <= UNITS
    assert named


def test_the_changelog_is_of_this_version() -> None:
    assert (DEBIAN / "changelog").read_text().startswith(f"{NAME} ({VERSION}) ")
