"""The systemd units, judged by systemd itself. Without `systemd-analyze` they fail; `make setup` has it."""

import configparser
import os
import subprocess
from pathlib import Path

import pytest

from edge.command_line import EX_WRONG_COMMAND_LINE
from edge.health_server import PATIENCE_S
from edge.spool.recovery import SALVAGE_S
from lab.tools.device_image import PACKAGING, ROOT, units

UNITS = units()
SERVICES = [each for each in UNITS if each.suffix == ".service"]
EXPOSURE = 15
"""Highest exposure that is accepted, in tenths of systemd's scale from 0 to 10; the network is most of it."""


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "SYSTEMD_UNIT_PATH": ":".join([*{str(each.parent) for each in UNITS}, ""]),
        },  # ours, then the system's own
    )


def section(unit: Path, name: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    return parser[name]


@pytest.mark.source("P7")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_every_line(unit: Path) -> None:
    verdict = analyze("verify", "--man=no", "--recursive-errors=no", str(unit))
    assert (verdict.returncode, verdict.stderr) == (0, "")


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_exposure_stays_low(unit: Path) -> None:
    verdict = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", str(unit))
    assert verdict.returncode == 0, verdict.stdout[-200:]


def test_a_careless_unit_would_be_found(tmp_path: Path) -> None:
    unit = tmp_path / "careless.service"
    unit.write_text("[Service]\nExecStart=/bin/true\nRestartt=always\n")
    assert "Restartt" in analyze("verify", "--man=no", str(unit)).stderr
    assert analyze("security", "--offline=true", f"--threshold={EXPOSURE}", str(unit)).returncode == 1


def test_the_forwarder_always_restarts() -> None:
    unit = PACKAGING / "eventplane-forwarder.service"
    order, service = section(unit, "Unit"), section(unit, "Service")
    assert order["After"].split() == ["mosquitto.service"]
    assert not {"Requires", "BindsTo", "PartOf"} & set(order)
    assert (order["StartLimitIntervalSec"], service["Restart"]) == ("0", "always")
    assert service["RestartPreventExitStatus"].split() == [str(EX_WRONG_COMMAND_LINE), str(os.EX_CONFIG)]
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")


def test_provisioning_does_not_start_again_where_it_cannot() -> None:
    """Status 243: systemd found no file of the claim."""
    service = section(ROOT / "parts/provisioning/eventplane-provisioning.service", "Service")
    fruitless = [str(EX_WRONG_COMMAND_LINE), str(os.EX_CONFIG), "243"]
    assert (service["Restart"], service["RestartPreventExitStatus"].split()) == ("on-failure", fruitless)


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_nothing_installed_beside_python_gets_into_a_service(unit: Path) -> None:
    python, *options = section(unit, "Service")["ExecStart"].split()
    assert python == "/usr/bin/python3"
    # The announcement needs a package; it is off by default.
    assert options[:2] == ["-I", "-S"] or (options[0] == "-I" and options[2] == "announce")


def test_the_forwarder_has_time_to_start() -> None:
    service = section(PACKAGING / "eventplane-forwarder.service", "Service")
    assert int(service["TimeoutStartSec"]) > 2 * SALVAGE_S
    assert int(service["TimeoutStopSec"]) > 5
    assert int(service["WatchdogSec"]) > 2 * PATIENCE_S
    assert service["Environment"] == "MALLOC_ARENA_MAX=1 LC_ALL=C"


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_services_share_one_user_and_one_private_directory(unit: Path) -> None:
    service = section(unit, "Service")
    assert (service["User"], service["StateDirectory"]) == ("eventplane", "eventplane")
    assert (service["StateDirectoryMode"], service["UMask"]) == ("0700", "0077")
    assert (PACKAGING / "eventplane.sysusers").read_text().count("\nu eventplane ") == 1
