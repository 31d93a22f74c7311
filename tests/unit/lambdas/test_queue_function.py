"""The entry of functions that read a queue: wired once, and when."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import Mock

import pytest

from lambdas.common.queue import Invocation
from lambdas.common.queue_function import IN_LAMBDA, QueueReader, queue_function
from tests.unit.lambdas.support import LambdaContext, figures, message, sqs_event


def test_in_lambda_the_reader_is_wired_at_import_and_once(aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTPLANE_SOURCE_QUEUE", "https://queue")
    wire = Mock(return_value=QueueReader(lambda *_: ()))
    handle = queue_function(wire)
    wire.assert_not_called()
    handle(sqs_event(message("m1", "")), LambdaContext())
    handle(sqs_event(message("m1", "")), LambdaContext())
    wire.assert_called_once_with()

    wire.reset_mock()
    monkeypatch.setenv(IN_LAMBDA, "function")
    handle = queue_function(wire)
    wire.assert_called_once_with()
    handle(sqs_event(message("m1", "")), LambdaContext())
    wire.assert_called_once_with()


def test_messages_that_failed_are_named_and_counted_and_wait(
    aws: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sqs = Mock(change_message_visibility_batch=Mock(return_value={}))
    monkeypatch.setattr("lambdas.common.queue_function.client", lambda *_: sqs)
    monkeypatch.setenv("EVENTPLANE_SOURCE_QUEUE", "https://queue")
    process = Mock(return_value={"m2"})
    handle = queue_function(lambda: QueueReader(process, wait=lambda attempt, _: 100 + attempt))
    batch = [message("m1", "a"), message("m2", "b", attempt=3)]

    response = handle(sqs_event(*batch), LambdaContext("request-7"))
    assert response == {"batchItemFailures": [{"itemIdentifier": "m2"}]}
    ((messages, invocation),) = (each.args for each in process.call_args_list)
    assert [each.id for each in messages] == ["m1", "m2"]
    assert isinstance(invocation, Invocation)
    assert (invocation.id, invocation.remaining_ms()) == ("request-7", 30_000)
    (entry,) = sqs.change_message_visibility_batch.call_args.kwargs["Entries"]
    assert (entry["ReceiptHandle"], entry["VisibilityTimeout"]) == ("handle-m2", 103)
    counted = figures(capsys.readouterr().out)
    assert (counted["Messages"], counted["Retried"]) == (2, 1)


_READ = """
import sys
if {absent}:
    sys.modules["orjson"] = None
from benchmarks import workload
import lambdas.common.queue_function
from eventplane import fast_reader
from eventplane.envelope import parse_event, parse_strictly
assert parse_event(workload.event(1)) == parse_strictly(workload.event(1))
print(len(fast_reader._json))
"""


@pytest.mark.parametrize(("absent", "used"), [(False, "1"), (True, "0")])
def test_functions_read_with_orjson_where_they_have_it(absent: bool, used: str) -> None:
    if not absent:
        pytest.importorskip("orjson")
    command = [sys.executable, "-c", _READ.format(absent=absent)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == used
