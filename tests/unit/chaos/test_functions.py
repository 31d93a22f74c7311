"""Only the processes of the named functions, of this cloud, are killed."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eventplane.resource_names import resource_name
from local.chaos.functions import kill_functions
from local.cloud import CloudEndpoint
from local.process import Child, Supervisor
from tests.eventually import eventually

CLOUD = CloudEndpoint("http://127.0.0.1:1", "eu-central-1", "", "", 0, "", "", "")


@contextmanager
def function(folder: Path, name: str, url: str) -> Iterator[Child]:
    variables = {"AWS_LAMBDA_FUNCTION_NAME": resource_name("local", name), "AWS_ENDPOINT_URL": url}
    with Supervisor(folder) as supervisor:
        yield supervisor.start(name, ["sleep", "60"], env={**os.environ, **variables})


def test_a_function_is_killed_and_no_other(tmp_path: Path) -> None:
    with (
        function(tmp_path, "router-device", CLOUD.url) as router,
        function(tmp_path, "archive-writer", CLOUD.url) as writer,
        function(tmp_path / "other", "router-device", "http://127.0.0.1:2") as stranger,
    ):
        assert kill_functions(CLOUD, "router-device") == 1
        assert eventually(lambda: router.has_ended)
        assert [each.status for each in router.ends] == [-signal.SIGKILL]
        assert kill_functions(CLOUD, "router-device") == 0
        assert writer.running
        assert stranger.running
