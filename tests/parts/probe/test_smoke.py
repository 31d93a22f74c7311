"""The smoke test without a plane: which results fail a run, and that every run removes its resources."""

import gzip
import io
import json
import signal
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from eventplane.contract import Contract
from eventplane.dead_letter import DEAD_LETTER_TYPE, letter_id
from eventplane.envelope import parse_event, write_event
from eventplane.sqs_binding import pack, to_message
from operations.cloud import Cloud
from operations.errors import NotDeployedHereError
from operations.glue_audit import AuditRunError, GlueAudit
from operations.patience import NotSeenError, Patience
from parts.probe.alarms import Notification, WrongOutcomeError, invoke_canary
from parts.probe.control import Interrupts, Removal, Removals, Requests
from parts.probe.plane import DeployedPlane, Evidence, StackStatusError, find_plane
from parts.probe.result import RunReport, Seen, StepResult, StepStatus
from parts.probe.run import Check, Choices, PeopleNotInformedError, SmokeRun
from parts.probe.samples import Samples
from parts.probe.throwaway import (
    DeviceEndpoint,
    ProvisioningFailedError,
    ThrowAwayDevice,
    device_endpoint,
    provision,
)
from tests.fakes.client import ScriptedClient
from tests.plane import plane_contract
from tests.small_contract import small_contract

CONTRACT = plane_contract()
NAME = "smoke-0a1b2c"
NOW_MS = 1_772_437_800_000
ALARM = "org.eventplane.alarm.keyword.v1"
AT_ONCE = Patience(timeout_s=0, pause_s=0)
CA = Path(__file__)
OUTPUTS = {
    "ArchiveBucket": "archive",
    "IngestRule": "rule",
    "ProvisioningTemplate": "template",
    "ContractVersion": "v1",
    "DeliveryAuditJob": "audit",
}


def refused(code: str, operation: str = "SomeCall") -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"RequestId": "r-1"}}, operation
    )


def test_removals_run_last_first_and_go_on_after_a_failure() -> None:
    removals, called = Removals(), []

    def refuse() -> None:
        raise refused("AccessDeniedException", "DeleteCertificate")

    def break_down() -> None:
        raise KeyError("thing")

    removals.add("first", lambda: called.append("first"))
    removals.add("refused", refuse)
    removals.add("broken", break_down)
    removals.add("last", lambda: called.append("last"))
    removed = list(removals.run())

    assert called == ["last", "first"]
    assert [each.words for each in removed if not each.problem] == ["last", "first"]
    problems = {each.words: each.problem for each in removed if each.problem}
    assert "ask for a role that may do that" in str(problems["refused"])
    assert "report this fault" in str(problems["broken"])
    assert not list(removals.run())


def passed(name: str = "event") -> StepResult:
    return StepResult(
        name, StepStatus.PASSED, "delivered to care-analytics.inbox", 2.0, 0.25, "m-1", {"s3:Get": "r-1"}
    )


REPORT = RunReport(
    NAME, "dev", "123456789012", "eu-central-1", [passed()], [Removal("queue", None)], ["rows"]
)


def test_a_report_shows_each_step_and_what_stays() -> None:
    text, document = REPORT.text(), REPORT.document()
    assert "event  passed  0.25 s   m-1" in text
    assert text.endswith("removed: queue\nstays: rows\npassed")
    (step,) = document["steps"]
    assert (step["latency_s"], step["requests"], document["passed"]) == (0.25, {"s3:Get": "r-1"}, True)


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        (replace(REPORT, steps=[passed(), StepResult("alarm", StepStatus.FAILED, "no\x1b[2J")]), "alarm"),
        (
            replace(REPORT, steps=[passed(), StepResult("audit", StepStatus.NOT_RUN, "needs archive")]),
            "audit",
        ),
        (replace(REPORT, removed=[Removal("queue", "AccessDenied")]), "removal of queue"),
        (replace(REPORT, steps=[]), ""),
    ],
)
def test_whatever_did_not_pass_or_was_not_removed_fails_the_run(report: RunReport, problem: str) -> None:
    assert not report.is_passed
    assert report.text().endswith(f"FAILED: {problem}")
    assert "\x1b" not in report.text(), "what comes from outside could move the cursor"


def test_an_interrupt_ends_no_removal(capsys: pytest.CaptureFixture[str]) -> None:
    interrupts, noted, before = Interrupts(), [], signal.getsignal(signal.SIGINT)
    with interrupts.taken():
        with pytest.raises(KeyboardInterrupt), interrupts.held():
            noted.append(signal.raise_signal(signal.SIGTERM))
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        interrupts.start_removing()
        signal.raise_signal(signal.SIGINT)
    assert noted == [None], "interrupted within the block"
    assert "still removing" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.lost_answers
def test_evidence_names_the_run(aws: None) -> None:
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="archive")
    now = datetime.now(UTC)

    def write(name: str, *lines: bytes) -> None:
        key = f"ledger/date={now:%Y-%m-%d}/hour={now:%H}/{name}.json.gz"
        s3.put_object(Bucket="archive", Key=key, Body=gzip.compress(b"\n".join(lines)))

    write("1", b'{"id": "another"}', b'{"id": "%b-event"}' % NAME.encode())
    s3.put_object(Bucket="archive", Key=f"ledger/date={now:%Y-%m-%d}/hour={now:%H}/bad.json.gz", Body=b"no")
    evidence = Evidence(s3, "archive", NAME, now)

    assert [each["id"] for each in evidence.ledger()] == [f"{NAME}-event"]
    write("2", b'{"id": "%b-alarm"}' % NAME.encode())
    assert [each["id"] for each in evidence.ledger()] == [f"{NAME}-event", f"{NAME}-alarm"]
    assert not evidence.tap()
    assert not Evidence(s3, "archive", NAME, now + timedelta(hours=1)).ledger()


class Glue:
    """AWS Glue with one job, which has one run at a time; `states` are those of its run, one a look."""

    def __init__(self, *states: str, refusals: int = 0) -> None:
        self._states = list(states)
        self._began = datetime.now(UTC) - timedelta(seconds=1)
        self._refusals = refusals
        self.stopped: list[str] = []
        self.started: list[Any] = []

    def start_job_run(self, **call: Any) -> dict[str, str]:
        if self._refusals or self.started:
            self._refusals -= 1
            raise refused("ConcurrentRunsExceededException")
        self.started.append(call)
        return {"JobRunId": "jr_1"}

    def get_job_runs(self, **_: Any) -> dict[str, Any]:
        return {"JobRuns": [{"Id": "jr_1", **each} for each in self.started]}

    def get_job_run(self, **_: Any) -> dict[str, Any]:
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        told = {"JobRunState": state, "StartedOn": self._began, "ErrorMessage": "no such bucket"}
        return {"JobRun": told}

    def batch_stop_job_run(self, **call: Any) -> dict[str, Any]:
        self.stopped = call["JobRunIds"]
        return {}


VERDICT = write_event(
    {"id": "v", "source": "/audit/delivery", "type": "t"}, {"report": "reports/2026-03-01/7.json"}
)


def audited(glue: Glue, removals: Removals, patience: Patience, written: datetime | None = None) -> Any:
    bodies = {
        "audit/verdicts/2026-03-01.json": VERDICT.json.encode(),
        "audit/reports/2026-03-01/7.json": b'{"verdict": "proven"}',
    }

    def get_object(**call: str) -> dict[str, Any]:
        if written is None or call["Key"] not in bodies:
            raise ClientError({"Error": {"Code": "NoSuchKey"}}, "GetObject")
        return {"LastModified": written, "Body": io.BytesIO(bodies[call["Key"]])}

    client = ScriptedClient("glue", glue)
    cloud: Any = SimpleNamespace(client=lambda _: client, s3=SimpleNamespace(get_object=get_object))
    audit = GlueAudit(cloud, "audit", "archive", lambda run: removals.add("the run", lambda: audit.stop(run)))
    return audit.report("2026-03-01", patience)


@pytest.mark.lost_answers
def test_the_audit_waits_for_another_run_and_returns_the_report() -> None:
    glue = Glue("RUNNING", "SUCCEEDED", refusals=1)

    assert audited(glue, Removals(), Patience(10, 0), datetime.now(UTC)) == {"verdict": "proven"}
    assert glue.started == [{"JobName": "audit", "Arguments": {"--DATE": "2026-03-01"}}]


def test_a_failed_audit_names_its_log() -> None:
    with pytest.raises(AuditRunError, match="FAILED: no such bucket; see /aws-glue/jobs/audit/error"):
        audited(Glue("FAILED"), Removals(), AT_ONCE)


@pytest.mark.parametrize("written", [None, datetime.now(UTC) - timedelta(hours=1)])
def test_an_audit_without_a_report_of_its_own_fails(written: datetime | None) -> None:
    with pytest.raises(AuditRunError, match="wrote no report"):
        audited(Glue("SUCCEEDED"), Removals(), AT_ONCE, written)


@pytest.mark.lost_answers
def test_an_audit_that_is_still_there_at_the_end_is_stopped() -> None:
    glue, removals = Glue("RUNNING"), Removals()
    with pytest.raises(NotSeenError):
        audited(glue, removals, AT_ONCE)
    assert [each.problem for each in removals.run()] == [None]
    assert glue.stopped == ["jr_1"]


def stacks(*statuses: str) -> Any:
    """A cloud in which CloudFormation has stacks of `dev` with `statuses`, and one of somebody else."""
    described = [
        {"StackName": f"eventplane-dev-{at}", "StackStatus": each, "Outputs": []}
        for at, each in enumerate(statuses)
    ]
    described.append({"StackName": "other", "StackStatus": "CREATE_IN_PROGRESS"})
    client = ScriptedClient("cloudformation", SimpleNamespace(describe_stacks=lambda: {"Stacks": described}))
    return SimpleNamespace(client=lambda _: client, account="1", region="eu-west-1")


@pytest.mark.lost_answers
def test_a_deployment_that_was_rolled_back_is_not_deployed() -> None:
    with pytest.raises(StackStatusError, match=r"eventplane-dev-1 is UPDATE_ROLLBACK_COMPLETE; .* deploy it"):
        find_plane(stacks("CREATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"), "dev", CONTRACT)
    with pytest.raises(NotDeployedHereError):
        find_plane(stacks(), "dev", CONTRACT)


def test_a_failed_provisioning_reports_the_log_of_the_device(tmp_path: Path) -> None:
    endpoint = DeviceEndpoint("127.0.0.1", 8_883, CA)
    deployed = replace(plane(), outputs={**OUTPUTS, "IngestRule": "no rule"})
    with pytest.raises(ProvisioningFailedError, match=r"status 78: .*'no rule'.*provisioning-hook"):
        provision(deployed, endpoint, NAME, tmp_path, 60.0, set())


def plane(*, keeps_data: bool = False) -> DeployedPlane:
    cloud: Any = SimpleNamespace(s3=None, tables=None, client=lambda _: None)
    queues: Any = None
    return DeployedPlane(cloud, "dev", CONTRACT, OUTPUTS, 13, queues, keeps_data)


class Archive:
    """The rows that a run finds."""

    def __init__(self, *_: Any) -> None:
        self.rows: list[dict[str, Any]] = []

    def ledger(self) -> list[dict[str, Any]]:
        return self.rows


Smoke = Callable[..., SmokeRun]


def test_samples_are_of_the_contract() -> None:
    found = Samples(CONTRACT, NAME).found
    assert {what: (sender, event.type) for what, (sender, event) in found.items()} == {
        "alarm": ("voice-service", ALARM),
        "event": ("health-service", "org.eventplane.health.reading.v1"),
        "command": ("carers", "org.eventplane.home.message.v1"),
        "forged": ("carers", "org.eventplane.home.message.v1"),
    }
    assert f"smoke test {NAME}, nobody needs help" in found["alarm"].event.json
    assert {found[each].event.attributes["todevice"] for each in ("command", "forged")} == {NAME}


OWN = small_contract(
    {"home": "device", "bell": {"kind": "device_service", "sends": ["ring"]}, "desk": "cloud_service"},
    {"rings": ({"exact": {"type": "ring"}}, "desk.inbox")},
    {"ring": {}},
)


def test_what_a_contract_lacks_is_not_tested(smoke: Smoke, monkeypatch: pytest.MonkeyPatch) -> None:
    run = smoke(contract=OWN)
    assert [*run._samples.found] == ["event"]
    sent: list[bytes] = []
    run._device = SimpleNamespace(report=lambda payload, **_: sent.append(payload))  # type: ignore[assignment]
    steps = [
        each for each in run.steps if each.name in ("send", "command", "canary", "alarm", "forged event")
    ]
    monkeypatch.setattr(SmokeRun, "steps", property(lambda _: [replace(each, needs=()) for each in steps]))
    results: list[StepResult] = []
    run.run(results.append)
    assert {each.name: each.status for each in results} == {
        "send": StepStatus.PASSED,
        **dict.fromkeys(("command", "canary", "alarm", "forged event"), StepStatus.ABSENT),
    }
    assert len(sent) == 2
    assert results[1].words == "not tested: the contract has no event that a cloud service sends to devices"
    assert replace(REPORT, steps=results).is_passed
    assert not replace(REPORT, steps=results[1:]).is_passed


@pytest.fixture
def smoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smoke:
    """Makes a run whose archive has the given rows."""
    archive = Archive()
    monkeypatch.setattr("parts.probe.run.Evidence", lambda *_: archive)
    choices = Choices(DeviceEndpoint("h", 1, CA), False, AT_ONCE, AT_ONCE)

    def make(*rows: dict[str, Any], keeps_data: bool = False, contract: Contract = CONTRACT) -> SmokeRun:
        archive.rows += rows
        requests = Requests(boto3.Session())
        deployed = replace(plane(keeps_data=keeps_data), contract=contract)
        return SmokeRun(NAME, deployed, choices, tmp_path, Removals(), requests, nullcontext)

    return make


def row(what: str, type: str, outcome: str, **others: Any) -> dict[str, Any]:
    """A row of the ledger about what the run sent."""
    return {
        "id": f"{NAME}-{what}" if what else "",
        "type": type,
        "outcome": outcome,
        "reason": None,
        "route": None,
        "destination": None,
        "contract_version": CONTRACT.version,
        "decided_at_ms": NOW_MS + 250,
        "entered_at_ms": NOW_MS,
        "message_id": "m-1",
        "client_id": NAME,
        "sender": f"{NAME}/carers",
        **others,
    }


class Canary:
    """The canary's function; `reports` are its answers, one an invocation."""

    def __init__(self, *reports: dict[str, Any]) -> None:
        self._reports = list(reports)
        self.calls: list[str] = []

    def invoke(self, FunctionName: str, **_: Any) -> dict[str, Any]:  # noqa: N803 - boto3's
        self.calls.append(FunctionName)
        report = self._reports.pop(0) if len(self._reports) > 1 else self._reports[0]
        error = {"FunctionError": "Unhandled"} if "errorMessage" in report else {}
        return {"Payload": io.BytesIO(json.dumps(report).encode()), **error}


def canary_report(delay_ms: int | None, problem: str | None = None) -> dict[str, Any]:
    return {"id": "c-1", "problem": problem, "delay_ms": delay_ms, "late": 0}


def invoked(canary: Canary) -> Seen:
    client = ScriptedClient("lambda", canary)
    cloud: Any = SimpleNamespace(client=lambda _: client)
    return invoke_canary(replace(plane(), cloud=cloud), Patience(10, 0))


@pytest.mark.lost_answers
def test_a_taken_alarm_calls_the_canary_again() -> None:
    canary = Canary(canary_report(None), canary_report(340))
    shown = invoked(canary)
    assert (shown.latency_s, shown.reference) == (0.34, "c-1")
    assert len(canary.calls) > 1
    assert set(canary.calls) == {"eventplane-dev-canary"}


@pytest.mark.parametrize(
    "report", [canary_report(None, "not taken at the step publish"), {"errorMessage": "not taken"}]
)
def test_a_canary_that_could_not_send_fails_with_its_problem(report: dict[str, Any]) -> None:
    with pytest.raises(WrongOutcomeError, match=r"not taken.*the log of the function eventplane-dev-canary"):
        invoked(Canary(report))


def step_of(run: SmokeRun, name: str) -> Check:
    return next(each for each in run.steps if each.name == name)


def delivered(*services: str) -> list[dict[str, Any]]:
    routes = {"alarm-centre": "alarms-to-alarm-centre", "family-app": "daily-life-to-family"}
    return [
        row("alarm", ALARM, "delivered", route=routes[each], destination=f"{each}.inbox") for each in services
    ]


def test_delivered_is_on_every_route(smoke: Smoke) -> None:
    run = smoke(*delivered("alarm-centre"))
    with pytest.raises(NotSeenError, match=r"the delivery of the alarm on all its routes .*eventplane trace"):
        step_of(run, "alarm").run()

    found = step_of(smoke(*delivered("family-app")), "alarm").run()
    assert found == Seen("delivered to alarm-centre.inbox, family-app.inbox", 0.25, "m-1")


def test_an_alarm_that_became_a_dead_letter_fails_with_its_reason(smoke: Smoke) -> None:
    run = smoke(row("alarm", ALARM, "dead_lettered", reason="sender_not_allowed"))
    with pytest.raises(WrongOutcomeError, match=r"the alarm: is dead_lettered, sender_not_allowed.*runbook"):
        step_of(run, "alarm").run()


def letter(id: str) -> dict[str, Any]:
    return row("", DEAD_LETTER_TYPE, "delivered", destination="operations.inbox") | {"id": id}


def test_a_malformed_message_needs_its_dead_letter_in_an_inbox(smoke: Smoke) -> None:
    refusal = row("", "", "dead_lettered", reason="not_json")
    with pytest.raises(NotSeenError):
        step_of(smoke(refusal), "malformed message").run()
    found = step_of(smoke(letter("m-1.0")), "malformed message").run()
    assert found.words == "not_json, its dead letter in operations.inbox"


def test_a_delivered_forgery_fails(smoke: Smoke) -> None:
    refusal = row("forged", "m", "dead_lettered", reason="sender_not_allowed")
    about = letter(letter_id(f"{NAME}/carers", "/carers", f"{NAME}-forged"))
    assert step_of(smoke(refusal, about), "forged event").run().words.startswith("sender_not_allowed")

    run = smoke(row("forged", "m", "delivered", destination="device.inbox"))
    with pytest.raises(WrongOutcomeError, match=r"was delivered to device.inbox; roll the deployment back"):
        step_of(run, "forged event").run()


def finding(kind: str, id: str | None, device: str = NAME) -> dict[str, Any]:
    return {"kind": kind, "id": id, "device": device, "source": None}


PLANTED = [finding("dead_lettered", None), finding("dead_lettered", f"{NAME}-forged")]


@pytest.mark.parametrize(
    ("findings", "problem"),
    [
        (PLANTED, None),
        ([*PLANTED, finding("lost", "of-another-home", "home-7")], None),
        ([*PLANTED, finding("lost", f"{NAME}-alarm")], "lost of smoke-0a1b2c-alarm"),
        ([*PLANTED, finding("duplicate", f"{NAME}-alarm")], None),
        (PLANTED[:1], "not the dead letters of the malformed message and of smoke-0a1b2c-forged"),
        ([], "found nothing"),
    ],
)
def test_planted_faults_are_found(
    smoke: Smoke, findings: Sequence[Any], problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = smoke()
    window = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}", "last_accepted_ms": NOW_MS, "tap_rows": 5, "ledger_rows": 9
    }  # fmt: skip
    document = {
        "window": window, "verdict": "proven", "coverage": {"share": 1.0},
        "findings": findings, "limits": {"findings": 1_000},
    }  # fmt: skip
    monkeypatch.setattr("parts.probe.run.GlueAudit.report", lambda *_: document)
    step = step_of(run, "audit")
    if problem is None:
        assert step.run().words.endswith("found what was planted")
    else:
        with pytest.raises(WrongOutcomeError, match=problem):
            step.run()


def test_people_are_informed_before_an_alarm(smoke: Smoke) -> None:
    run = smoke(keeps_data=True)
    with pytest.raises(PeopleNotInformedError, match="--people-are-informed"):
        step_of(run, "deployment").run()

    results: list[StepResult] = []
    run.run(results.append)
    assert {each.name: each.status for each in results if each.status is not StepStatus.NOT_RUN} == {
        "deployment": StepStatus.FAILED
    }, "something was sent"


def test_a_refusal_has_its_request_id(smoke: Smoke, monkeypatch: pytest.MonkeyPatch) -> None:
    run = smoke()

    def refuse() -> Seen:
        raise refused("AccessDeniedException", "CreateTopic")

    monkeypatch.setattr(
        SmokeRun, "steps", property(lambda _: (Check("a", refuse), Check("b", refuse, ("a",))))
    )
    results: list[StepResult] = []
    run.run(results.append)
    assert [(each.status, each.reference) for each in results] == [
        (StepStatus.FAILED, "r-1"),
        (StepStatus.NOT_RUN, ""),
    ]
    assert "CreateTopic" in results[0].words
    assert "ask for a role" in results[0].words


def test_only_messages_without_a_foreign_event_are_deleted(smoke: Smoke) -> None:
    run = smoke()
    own = [write_event({"id": f"{NAME}-{at}", "source": "/s", "type": "t"}, {}) for at in range(300)]
    other = write_event({"id": "1", "source": "/homes/7", "type": "t"}, {})
    (alone,) = pack([own[0]], {}, 10)
    (packed,) = pack(own, {}, 1_000)
    (mixed,) = pack([*own[:2], other], {}, 10)
    assert [run._is_own(each.body) for each in (alone, packed, mixed, to_message(other))] == [
        True, True, False, False
    ]  # fmt: skip
    assert not run._is_own("H4sIno batch")


@pytest.mark.lost_answers
def test_no_look_costs_events_of_others_a_receive(smoke: Smoke, aws: None) -> None:
    sqs = boto3.client("sqs")
    names = ("carers", "family-app")
    urls = {f"{name}.inbox": sqs.create_queue(QueueName=f"{name}-inbox")["QueueUrl"] for name in names}
    sqs.send_message(QueueUrl=urls["carers.inbox"], MessageBody="of another device")
    run = smoke()
    run.plane.cloud.sqs = sqs  # type: ignore[misc]
    run.plane = replace(run.plane, queues=SimpleNamespace(channel_urls=urls))  # type: ignore[arg-type]
    run._thing = SimpleNamespace(register=lambda: None)  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        run._certificate()  # no claim here
    for url in urls.values():
        sqs.send_message(QueueUrl=url, MessageBody=f"of {NAME}")
    run._clear_inboxes()
    others = sqs.receive_message(
        QueueUrl=urls["carers.inbox"], MaxNumberOfMessages=10, AttributeNames=["ApproximateReceiveCount"]
    )["Messages"]
    assert {each["Attributes"]["ApproximateReceiveCount"] for each in others} == {"1"}
    assert "Messages" not in sqs.receive_message(QueueUrl=urls["family-app.inbox"])
    assert run.kept == ["what came to carers.inbox: events of others waited there before"]


class Alarms:
    """CloudWatch with one alarm, whose topic is notified of its states."""

    def __init__(self, topic: str) -> None:
        self.topic, self.state = topic, "OK"

    def describe_alarms(self, **_: Any) -> dict[str, Any]:
        alarm = {"AlarmName": "a", "StateValue": self.state, "ActionsEnabled": True}
        return {"MetricAlarms": [{**alarm, "AlarmActions": [self.topic]}]}

    def set_alarm_state(self, *, StateValue: str, **alarm: str) -> dict[str, Any]:  # noqa: N803 - as botocore has it
        self.state = StateValue
        told = {"AlarmName": alarm["AlarmName"], "NewStateReason": alarm["StateReason"]}
        boto3.client("sns").publish(TopicArn=self.topic, Message=json.dumps(told))
        return {}


def cloud_of(**scripts: Any) -> Cloud:
    """moto's cloud, but for the services that have a script."""
    clients = {service: ScriptedClient(service, script) for service, script in scripts.items()}
    return Cloud(SimpleNamespace(client=lambda name, **_: clients.get(name) or boto3.client(name)))


@pytest.mark.lost_answers
def test_each_topic_is_notified_of_an_alarm_and_nothing_stays(aws: None) -> None:
    sns, sqs = boto3.client("sns"), boto3.client("sqs")
    topic = sns.create_topic(Name="pages")["TopicArn"]
    alarms, removals = Alarms(topic), Removals()
    shown = Notification(cloud_of(cloudwatch=alarms), "eventplane-dev-", NAME, removals).exercise(AT_ONCE)
    assert shown.words == "notified: a by pages"
    assert [each["Endpoint"] for each in sns.list_subscriptions()["Subscriptions"]] == [
        f"arn:aws:sqs:us-east-1:123456789012:{NAME}"
    ]
    assert [each.problem for each in removals.run()] == [None] * 3
    assert (alarms.state, sns.list_subscriptions()["Subscriptions"], sqs.list_queues().get("QueueUrls")) == (
        "OK", [], None
    )  # fmt: skip


@pytest.mark.lost_answers
def test_the_claim_of_a_run_is_of_use_until_it_is_removed(aws: None, tmp_path: Path) -> None:
    iot, removals = boto3.client("iot"), Removals()
    iot.create_policy(policyName="claim", policyDocument="{}")
    deployed = replace(plane(), cloud=cloud_of(), outputs={"ClaimPolicy": "claim"})
    ThrowAwayDevice(deployed, NAME, removals, nullcontext).make_claim(tmp_path)
    assert b"PRIVATE KEY" in (tmp_path / "claim.key").read_bytes()
    (claim,) = iot.list_targets_for_policy(policyName="claim")["targets"]
    # Of a request whose answer was lost there is another, with which nothing can connect.
    active = [each["certificateArn"] for each in listed(iot) if each["status"] == "ACTIVE"]
    assert active == [claim]
    assert [each.problem for each in removals.run()] == [None]
    assert "ACTIVE" not in {each["status"] for each in listed(iot)}
    assert iot.list_targets_for_policy(policyName="claim")["targets"] == []


def listed(iot: Any) -> list[dict[str, Any]]:
    """The certificates of the account."""
    return list(iot.list_certificates()["certificates"])


@pytest.mark.lost_answers
def test_a_command_is_sent_by_its_service(smoke: Smoke, aws: None) -> None:
    run, sqs = smoke(), boto3.client("sqs")
    url = sqs.create_queue(QueueName="carers-outbox")["QueueUrl"]
    run.plane.cloud.sqs = sqs  # type: ignore[misc]
    run.plane = replace(run.plane, queues=SimpleNamespace(channel_urls={"carers.outbox": url}))  # type: ignore[arg-type]
    run._device = SimpleNamespace()  # type: ignore[assignment]
    with pytest.raises(AttributeError, match="receive"):
        run._command()
    sent = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    # The forwarder drops a copy: its version is not newer.
    assert {parse_event(each["Body"]).id for each in sent} == {f"{NAME}-command"}


@pytest.mark.lost_answers
def test_the_endpoint_of_devices_is_the_accounts() -> None:
    iot = SimpleNamespace(describe_endpoint=lambda **_: {"endpointAddress": "ats.host"})
    assert device_endpoint(cloud_of(iot=iot), None, CA) == DeviceEndpoint("ats.host", 8_883, CA)
