"""The Debian package in clean roots: dpkg installs, upgrades, removes and purges it, also beside others'.

They are Debian 12, Debian 13 (Python 3.13) and the Debian after it (Mosquitto 2.1), for this machine's
processor. There is no systemd in them: test_units.py shows what it does under one, on a device's processor.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from lab.tools.device_image import ROOT, VERSION
from tests.device.conftest import NEXT_VERSION, require_root_folders
from tests.device.image import build_package, copy_root, in_root

pytestmark = pytest.mark.source("P7")

SETTINGS = "etc/eventplane/forwarder.toml"
WANTED = "etc/systemd/system/multi-user.target.wants/eventplane-forwarder.service"
BROKER = "etc/mosquitto/mosquitto.conf"
LINK = "etc/mosquitto/conf.d/eventplane.conf"
RELEASED = "54324433"
"""The commit of 0.3.0, whose package puts the profile into conf.d."""


@pytest.fixture(scope="module", params=["bookworm", "trixie", "forky"])
def root(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A clean Debian with the packages in its /root, none of them installed."""
    require_root_folders()
    folder = tmp_path_factory.mktemp("package")
    try:
        root = copy_root(request.param, folder)
    except subprocess.CalledProcessError:
        if request.param == "forky":  # not released: it changes daily, and no mirror has to have it
            pytest.skip("the next Debian cannot be installed today")
        raise
    build_package(root / "root" / "this.deb")
    build_package(root / "root" / "next.deb", NEXT_VERSION)
    archive = f"git -C '{ROOT}' archive {RELEASED} | tar --extract --one-top-level=released"
    taken = subprocess.run(["bash", "-o", "pipefail", "-c", archive], cwd=folder, check=False).returncode == 0
    if taken:
        build = [sys.executable, "tools/debian_package.py", "--output", str(root / "root" / "released.deb")]
        subprocess.run(build, cwd=folder / "released", check=True)
    return root


def dpkg(root: Path, *arguments: str) -> str:
    return in_root(root, "dpkg", *arguments)


def install(root: Path, name: str = "this") -> str:
    return dpkg(root, "--install", f"/root/{name}.deb")


def version(root: Path) -> str:
    return in_root(
        root, "dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", "eventplane-forwarder"
    )


def broker_runs(root: Path, *, reload: bool = False) -> bool:
    """Whether Mosquitto starts, and reads its files again, in a network of its own."""
    up = "fcntl.ioctl(socket.socket(), 0x8914, b'lo'.ljust(16, b'\\0') + b'\\x49'.ljust(16, b'\\0'))"
    end = "kill -KILL $broker"  # SIGTERM would be lost just before its loop
    if reload:
        end = "kill -HUP $broker; grep --max-count=1 'Reloading config'; kill $broker"
    script = f"""
        python3 -c "import fcntl, socket; {up}" # the loopback interface
        log=/var/log/mosquitto/mosquitto.log
        install -d -o mosquitto /run/mosquitto /var/lib/mosquitto # as its unit does
        install -m 666 /dev/null $log
        mosquitto -v -c /{BROKER} >>$log 2>&1 & broker=$!
        tail --pid=$broker --follow --lines=+1 $log | {{
            grep ' running$' --max-count=1
            {end}
        }}
        wait $broker; cat $log
    """
    said = in_root(root, "unshare", "--net", "sh", "-uc", script)
    reread = said.partition("Reloading config")[2]
    return " running\n" in said and (not reload or (bool(reread) and "Error" not in reread))


def test_it_is_installed_with_its_user_command_settings_and_enabled_unit(root: Path) -> None:
    install(root)
    assert version(root) == f"installed {VERSION}"
    assert in_root(root, "id", "--name", "--user", "eventplane").strip() == "eventplane"
    assert (
        in_root(root, "eventplane-forwarder", "--version") == f"eventplane-forwarder {VERSION} (emulated)\n"
    )
    assert (root / WANTED).readlink().name == "eventplane-forwarder.service"
    assert dpkg(root, "--verify", "eventplane-forwarder") == ""


def test_its_settings_say_what_is_missing(root: Path) -> None:
    check = ("eventplane-forwarder", "check", "--settings", f"/{SETTINGS}")
    problems = in_root(root, "runuser", "-u", "eventplane", "--", *check, status=os.EX_CONFIG)
    assert "setting 'thing': it is missing" in problems


def test_mosquitto_takes_the_profile_beside_debians_own_file(root: Path) -> None:
    assert (root / LINK).readlink() == Path("../eventplane.conf")
    assert broker_runs(root)


def test_the_access_rules_are_made_as_printed_and_mosquitto_reads_them_also_at_a_reload(root: Path) -> None:
    page = (ROOT / "docs" / "reference" / "device.md").read_text()
    printed = re.search(r"^### Access rules\n.*?^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    first, *lines = printed[1].splitlines()  # the first one is for a computer with the contract's sources
    subprocess.run(["bash", "-euc", first], cwd=root / "root", check=True)
    typed = [f"yes secret | {{ {each.partition('#')[0]}; }}" for each in lines]
    in_root(root, "sh", "-euc", "\n".join(['cd /root; sudo() { "$@"; }', *typed]))
    profile = root / "etc/mosquitto/eventplane.conf"
    before = profile.read_text()
    access = (root / "usr/share/eventplane/mosquitto-access.conf").read_text()
    profile.write_text(before.replace("allow_anonymous true\n", access))
    assert "eventplane.acl" in profile.read_text()
    assert broker_runs(root, reload=True)
    profile.write_text(before)
    for made in ("acl", "passwd"):  # an administrator's, also after a purge
        (root / f"etc/mosquitto/eventplane.{made}").unlink()


def test_an_upgrade_keeps_what_an_administrator_decided(root: Path) -> None:
    edited = (root / SETTINGS).read_text().replace('#thing = ""', 'thing = "home-1"')
    (root / SETTINGS).write_text(edited)
    spool = root / "var/lib/eventplane/spool.db"
    spool.parent.mkdir()
    spool.touch()
    for decided in (WANTED, LINK):  # what `systemctl disable` does; the profile is no longer in force
        (root / decided).unlink()
    install(root, "next")
    assert version(root) == f"installed {NEXT_VERSION}"
    assert (root / SETTINGS).read_text() == edited
    assert [each for each in (WANTED, LINK) if (root / each).is_symlink()] == []


def test_removing_keeps_settings_and_spool_and_installing_again_takes_them(root: Path) -> None:
    dpkg(root, "--remove", "eventplane-forwarder")
    assert version(root).startswith("config-files ")
    assert not (root / "usr/bin/eventplane-forwarder").is_symlink()
    assert (root / SETTINGS).exists()
    assert (root / "var/lib/eventplane/spool.db").exists()
    install(root)
    assert 'thing = "home-1"' in (root / SETTINGS).read_text()


def purge(root: Path) -> None:
    dpkg(root, "--purge", "eventplane-forwarder")
    left = in_root(
        root, "find", "/etc", "/usr", "/var/lib", "-name", "*eventplane*", "-not", "-path", "/usr/share/doc/*"
    )
    assert left == ""


def test_purging_leaves_nothing_but_the_user(root: Path) -> None:
    (root / "etc/eventplane/claim.key").write_text("the fleet's")
    purge(root)
    assert in_root(root, "id", "--name", "--user", "eventplane").strip() == "eventplane"
    assert dpkg(root, "--audit") == ""


@pytest.mark.parametrize(
    ("before", "is_in_force"),
    [("as it was", True), ("edited", True), ("deleted", False), ("clash", False)],
)
def test_an_upgrade_keeps_the_profile(root: Path, before: str, is_in_force: bool) -> None:
    if not (root / "root" / "released.deb").exists():
        pytest.skip("this clone lacks the commit of 0.3.0 (git fetch --unshallow)")
    install(root, "released")
    assert not (root / LINK).is_symlink()
    if before == "edited":
        (root / LINK).write_text(
            (root / LINK).read_text().replace("autosave_interval 30", "autosave_interval 77")
        )
    if before == "deleted":
        (root / LINK).unlink()
    home = root / "etc/mosquitto/conf.d/home.conf"
    home.write_text("listener 1883\nallow_anonymous true\n" if before == "clash" else "listener 1884\n")
    said = install(root)
    assert (root / LINK).is_symlink() == is_in_force
    assert ("/etc/mosquitto/conf.d/home.conf:1: listener 1883" in said) == (before == "clash")
    profile = (root / "etc/mosquitto/eventplane.conf").read_text()
    assert ("autosave_interval 77" in profile) == (before == "edited")
    assert broker_runs(root)
    install(root)  # once more, from the same version
    assert (root / LINK).is_symlink() == is_in_force
    home.unlink()
    purge(root)


INCLUDES = "include_dir /etc/mosquitto/conf.d\n"
CONFIGURED: Mapping[str, tuple[Mapping[str, str], list[str]]] = {  # files, and the lines that are named
    "open to all": (
        {"conf.d/home.conf": "listener 1883 0.0.0.0\nallow_anonymous true\n"},
        ["conf.d/home.conf:1: listener 1883 0.0.0.0"],
    ),
    "each by itself": (
        {
            "mosquitto.conf": f"per_listener_settings true\n{INCLUDES}include_dir /etc/mosquitto/more.d\n",
            "conf.d/a b.conf": "# all\r\n\r\nlistener 0 /run/mosquitto/mqtt\r\nallow_anonymous false\r\n",
            "conf.d/z.conf": "listener 1884\nlistener 1885 ::1 # a\nmax_queued_messages 0\n",
            "more.d/home.conf": "#\nlistener 1883 127.0.0.1\nallow_anonymous true\n",
            "more.d/home.bak": "listener 1883\n",
        },
        [
            "mosquitto.conf:1: ",
            "conf.d/a b.conf:3: ",
            "conf.d/a b.conf:4: ",
            "conf.d/z.conf:3: ",
            "more.d/home.conf:2: ",
        ],
    ),
    "as it was done before": (
        {"conf.d/.x.conf": "port 1883\nbind_address 127.0.0.1\n"},
        ["conf.d/.x.conf:2: "],
    ),
    "settings alone": ({"conf.d/limits.conf": "max_queued_messages 0\n"}, ["conf.d/limits.conf:1: "]),
    "without conf.d": ({"mosquitto.conf": "listener 1883\n"}, ["mosquitto.conf: it does not include "]),
    "nothing that matters": ({"conf.d/keep.conf": "max_keepalive 600\nlog_type error\n"}, []),
    "broken": ({"conf.d/home.conf": "# ours\nlistener\n"}, ["conf.d/home.conf:2: "]),
}


@pytest.mark.parametrize("name", CONFIGURED)
def test_a_mosquitto_that_somebody_configured_stays_as_it_is(root: Path, name: str) -> None:
    configured, named = CONFIGURED[name]
    folder = root / "etc/mosquitto"
    debians = (root / BROKER).read_text()
    (folder / "more.d").mkdir(exist_ok=True)
    for path, text in configured.items():
        (folder / path).write_bytes(text.encode())
        (folder / path).chmod(0o600)
    ran = broker_runs(root)
    said = install(root)
    assert (root / LINK).is_symlink() == (not named)
    assert [each for each in named if f"/etc/mosquitto/{each}" not in said] == []
    assert ("is not in force" in said) == bool(named)
    assert broker_runs(root) == ran == (name != "broken")
    purge(root)
    assert {path: (folder / path).read_bytes().decode() for path in configured} == configured
    for path in configured:
        (folder / path).unlink()
    (root / BROKER).write_text(debians)
