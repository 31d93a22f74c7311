"""The command `provision` ends at once with settings that cannot work, and names the remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edge.command_line import main
from edge.errors import SettingsError
from edge.settings import ProvisioningSettings, load_settings

FORWARDER = (
    'thing = "home-1"\ncontract = "c.json"\nspool = "s.db"\n'
    '[cloud]\nhost = "h"\nrule = "r"\nca = "ca.pem"\ncertificate = "identity.pem"\nkey = "{key}"\n'
)
PROVISIONING = (
    '[provisioning]\ntemplate = "fleet"\nclaim_certificate = "claim.crt"\nclaim_key = "claim.key"\n'
)


def write(folder: Path, text: str, key: str = "identity.pem") -> Path:
    file = folder / "device.toml"
    file.write_text(text.format(key=key))
    return file


@pytest.mark.parametrize(
    ("text", "key", "remedy"),
    [
        (FORWARDER, "identity.pem", "'provisioning': the table is missing; add it"),
        (FORWARDER + PROVISIONING, "other.pem", "name one file for both"),
    ],
)
def test_settings_that_cannot_work_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    key: str,
    remedy: str,
) -> None:
    assert main(["provision", "--settings", str(write(tmp_path, text, key))]) == os.EX_CONFIG
    assert remedy in capsys.readouterr().err


def test_a_forwarder_without_the_table_needs_nothing_of_it(tmp_path: Path) -> None:
    assert load_settings(write(tmp_path, FORWARDER), {}).provisioning is None


def test_the_table_is_read_with_paths_from_the_file_and_the_environment(tmp_path: Path) -> None:
    file = write(tmp_path, FORWARDER + PROVISIONING)
    environment = {"EVENTPLANE_PROVISIONING_CLAIM_KEY": "/run/credentials/claim.key"}
    assert load_settings(file, environment).provisioning == ProvisioningSettings(
        template="fleet",
        claim_certificate=tmp_path / "claim.crt",
        claim_key=Path("/run/credentials/claim.key"),
    )


@pytest.mark.parametrize(
    ("line", "setting"),
    [
        ("", "provisioning.template"),
        ('template = "a b"', "provisioning.template"),
        ('template = "a"\nkeys = "both"', "provisioning.keys"),
        ('template = "a"\nmax_age_days = 0', "provisioning.max_age_days"),
        ('template = "a"\nhook = "x"', "provisioning.hook"),
    ],
)
def test_a_wrong_table_is_named(tmp_path: Path, line: str, setting: str) -> None:
    rest = 'claim_certificate = "c"\nclaim_key = "k"\n'
    file = write(tmp_path, f"{FORWARDER}[provisioning]\n{rest}{line}\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(file, {})
    assert [each.setting for each in caught.value.problems] == [setting]
