"""What every test may ask for."""

import gc
import os
import sys
from pathlib import Path

import pytest

import tests.examples  # noqa: F401 - the profile that `--hypothesis-profile` names

# jsii runs `node` from PATH: the locked one, which lies beside this Python, also without `make`.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"

# What Python itself prints is in English, and is not looked for in files of translations at each word.
os.environ["LANGUAGE"] = "C"


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what jobs leave for this user, such as the key that attests receipts, out of the user's home."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The directory of the real input data. Without it a test is skipped, but in CI it fails."""
    data = Path(os.environ.get("EVENTPLANE_SHARED", "../shared")) / "data"
    if not data.is_dir():
        missing = f"{data} is missing; name its parent with EVENTPLANE_SHARED"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return data


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking over all modules and tests again and again."""
    gc.freeze()
