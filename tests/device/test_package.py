"""The Debian package in a clean Debian root for armv7l: dpkg installs, upgrades, removes and purges it.

There is no systemd in it: test_units.py shows what it does under one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from local.ports import free_port
from tests.device.conftest import NEXT_VERSION, require_root_folders
from tests.device.image import build_package, copy_root, in_root
from tools.device_image import VERSION

pytestmark = pytest.mark.source("P7")

SETTINGS = "etc/eventplane/forwarder.toml"
WANTED = "etc/systemd/system/multi-user.target.wants/eventplane-forwarder.service"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean Debian with both packages in its /root, neither of them installed."""
    require_root_folders()
    root = copy_root("userland", tmp_path_factory.mktemp("package"))
    build_package(root / "root" / "this.deb")
    build_package(root / "root" / "next.deb", NEXT_VERSION)
    return root


def version(root: Path) -> str:
    return in_root(
        root, "dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", "eventplane-forwarder"
    )


def test_it_is_installed_with_its_user_command_settings_and_enabled_unit(root: Path) -> None:
    in_root(root, "dpkg", "--install", "/root/this.deb")
    assert version(root) == f"installed {VERSION}"
    assert in_root(root, "id", "--name", "--user", "eventplane").strip() == "eventplane"
    assert (
        in_root(root, "eventplane-forwarder", "--version") == f"eventplane-forwarder {VERSION} (emulated)\n"
    )
    assert (root / WANTED).readlink() == Path("/lib/systemd/system/eventplane-forwarder.service")
    assert in_root(root, "dpkg", "--verify", "eventplane-forwarder") == ""


def test_its_settings_say_what_is_missing(root: Path) -> None:
    check = ("eventplane-forwarder", "check", "--settings", f"/{SETTINGS}")
    problems = in_root(root, "runuser", "-u", "eventplane", "--", *check, status=os.EX_CONFIG)
    assert "setting 'thing': it is missing" in problems


def test_mosquitto_takes_the_profile_beside_debians_own_file(root: Path) -> None:
    """It runs until it is ended (124); a text that is set twice, or refused, ends it with another status."""
    script = (
        "cp -r /etc/mosquitto /tmp/profile; cd /tmp/profile; install -d -o mosquitto /run/mosquitto\n"
        "sed -i s#/etc/mosquitto#/tmp/profile# mosquitto.conf\n"
        f"sed -i 's/^listener 1883/listener {free_port()}/' conf.d/eventplane.conf\n"
        "timeout 10 mosquitto -c mosquitto.conf"
    )
    in_root(root, "sh", "-euc", script, status=124)


def test_an_upgrade_keeps_what_an_administrator_decided(root: Path) -> None:
    edited = (root / SETTINGS).read_text().replace('#thing = ""', 'thing = "home-1"')
    (root / SETTINGS).write_text(edited)
    spool = root / "var/lib/eventplane/spool.db"
    spool.parent.mkdir()
    spool.touch()
    (root / WANTED).unlink()  # what `systemctl disable` does
    in_root(root, "dpkg", "--install", "/root/next.deb")
    assert version(root) == f"installed {NEXT_VERSION}"
    assert (root / SETTINGS).read_text() == edited
    assert not (root / WANTED).is_symlink()


def test_removing_keeps_settings_and_spool_and_installing_again_takes_them(root: Path) -> None:
    in_root(root, "dpkg", "--remove", "eventplane-forwarder")
    assert version(root).startswith("config-files ")
    assert not (root / "usr/bin/eventplane-forwarder").is_symlink()
    assert (root / SETTINGS).exists()
    assert (root / "var/lib/eventplane/spool.db").exists()
    in_root(root, "dpkg", "--install", "/root/this.deb")
    assert 'thing = "home-1"' in (root / SETTINGS).read_text()


def test_purging_leaves_nothing_but_the_user(root: Path) -> None:
    (root / "etc/eventplane/claim.key").write_text("the fleet's")
    in_root(root, "dpkg", "--purge", "eventplane-forwarder")
    left = in_root(
        root, "find", "/etc", "/usr", "/var/lib", "-name", "*eventplane*", "-not", "-path", "/usr/share/doc/*"
    )
    assert left == ""
    assert in_root(root, "id", "--name", "--user", "eventplane").strip() == "eventplane"
    assert in_root(root, "dpkg", "--audit") == ""
