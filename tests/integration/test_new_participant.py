"""The first step of a newcomer: a participant is added to the shipped contract, and the tests still pass.

In a copy of the checkout, by the command that the documentation names.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stacks.bundling import CACHE, ROOT

TESTS = (
    "tests/unit/contract/test_catalogue.py",
    "tests/unit/contract/test_contract.py",
    "tests/unit/contract/test_schema_files.py",
    "tests/unit/lab/test_demo.py",
    "tests/unit/lambdas/test_dispatch.py",
    "tests/parts/replay/test_command.py",
    "tests/parts/discovery_api",
)
"""Those of the whole contract, and one of each folder whose tests know the plane by tests/plane.py."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all that is in version control, and of what is about to be."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    copy = tmp_path_factory.mktemp("copy") / "checkout"
    for name in filter(None, names.split("\0")):
        source = ROOT / name
        if source.is_file() and not source.is_symlink():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy / name)
    return copy


def run(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=checkout, check=False, capture_output=True, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip


def new(checkout: Path, *arguments: str) -> None:
    done = run(checkout, "-m", "eventplane", "new", *arguments)
    assert done.returncode == 0, done.stderr


def test_a_new_participant_breaks_no_test(checkout: Path) -> None:
    families = ("org.eventplane.alarm.*", "org.eventplane.health.reading.v1", "org.eventplane.activity.*")
    wanted = [each for family in families for each in ("--receives", family)]
    new(checkout, "participant", "laundry-service", "--kind", "device-service")
    new(checkout, "participant", "laundry-app", "--kind", "cloud-service", *wanted)
    sent = ("--sender", "laundry-service", "--receiver", "laundry-app", "--receiver", "carers")
    new(checkout, "event-type", "com.example.laundry.done.v1", *sent)
    tested = run(
        checkout, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=fast", *TESTS
    )
    assert tested.returncode == 0, tested.stdout[-5_000:]


def test_a_webhook_without_a_url_is_reported_before_anything_is_bundled(checkout: Path) -> None:
    new(checkout, "participant", "hook", "--kind", "cloud-service", "--webhook")
    started = run(checkout, "app.py", CDK_CONTEXT_JSON=json.dumps({"env": "dev"}))
    assert started.returncode == 1
    assert started.stderr.strip() == (
        "webhook_urls of dev has no URL for hook, whose inbox is a webhook in the contract; "
        "correct it in stacks/environments.toml"
    )
    assert not (checkout / CACHE.relative_to(ROOT)).exists()
