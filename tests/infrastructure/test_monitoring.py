"""Somebody is told of everything that goes wrong, and nothing is watched that does not exist."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from eventplane.contract import Contract, Priority
from glue_jobs.compaction import main as compaction
from glue_jobs.delivery_audit.main import totals_line
from lambdas.common.metrics import Delay, Metric
from stacks.bundling import ROOT
from stacks.config import ENVIRONMENTS, environment
from stacks.constructs.figure_watches import NAMESPACE
from tests.infrastructure.templates import Resource, Templates

ALARM = "AWS::CloudWatch::Alarm"

MARKED = {
    name
    for path in ("fleet/hook.py", "fleet/rotation.py", "presence/judge.py")
    for name in re.findall(r'mark\("(\w+)"', (ROOT / "lambdas" / path).read_text())
}
"""Figures that are written one by one."""

DEAD_ENDS = ("ingest-errors", "presence-dlq", "connections-dlq", "downlink-work-dlq")
"""Queues for what a rule could not hand over."""


def plane_alarms(templates: Templates) -> list[Resource]:
    """Those that tell somebody; others roll back a deployment (tests/infrastructure/test_rollout.py)."""
    return [each for each in templates.of(ALARM) if each.stack == "monitoring"]


def alarms(templates: Templates) -> dict[tuple[str, str], Resource]:
    """By metric and by the name of what has it."""
    return {(metric(each), watched(each)): each for each in plane_alarms(templates)}


def metric(alarm: Resource) -> str:
    return str(alarm.find("MetricName") or queried(alarm)["metric"])


def queried(alarm: Resource) -> dict[str, str]:
    """What a query asks of AWS IoT."""
    (query,) = alarm.find("Metrics")
    asks = r"SELECT SUM\((?P<metric>\w+)\) FROM \"AWS/IoT\" WHERE RuleName = '(?P<rule>\w+)'"
    found = re.fullmatch(asks, query["Expression"])
    assert found
    assert (query["ReturnData"], query["Period"]) == (True, 300)
    return found.groupdict()


def watched(alarm: Resource) -> str:
    if alarm.find("Metrics"):
        return queried(alarm)["rule"]
    own = {each["Name"]: each["Value"] for each in alarm.find("Dimensions") or []}
    return str(own.get("service") or next(iter(own.values()), alarm.find("Namespace")))


def test_every_queue_has_its_alarm(templates: Templates, contract: Contract) -> None:
    found = alarms(templates)
    for queue in templates.of("AWS::SQS::Queue"):
        name = queue.find("QueueName")
        if name.endswith("-replies"):
            continue  # nobody is to look after replies that nobody waits for
        if "-dlq" in name:
            alarm = found["ApproximateNumberOfMessagesVisible", name]
            assert (alarm.find("Threshold"), alarm.find("EvaluationPeriods")) == (0, 1)
        else:
            alarm = found["ApproximateAgeOfOldestMessage", name]
            assert alarm.find("Threshold") == (60 if is_urgent(name, contract) else 900), name


def is_urgent(name: str, contract: Contract) -> bool:
    own = name.split("-", 2)[2]
    urgent = {
        channel.address.replace(".", "-")
        for each in contract.participants.values()
        for channel in (each.inbox, each.outbox)
        if channel.priority is Priority.URGENT
    }
    return own in urgent | {"ingest-urgent"}


def test_every_function_and_rule_has_its_alarms(templates: Templates, local: Templates) -> None:
    found = alarms(templates)
    for function in templates.of("AWS::Lambda::Function"):
        assert {
            ("Errors", function.find("FunctionName")),
            ("Throttles", function.find("FunctionName")),
        } <= set(found)
    for rule in templates.of("AWS::IoT::TopicRule"):
        for metric in ("RuleNotFound", "RuleMessageThrottled"):
            assert (metric, rule.find("RuleName")) in found
        is_told = ("ErrorActionFailure", rule.find("RuleName")) in found
        assert is_told == (templates is not local), "the emulator has no alarms on queries"
        errors = json.dumps(rule.find("TopicRulePayload", "ErrorAction"))
        assert any(errors.count(name) == 1 for name in DEAD_ENDS)
    assert any(metric == "NumberOfMessagesSent" and "ingest-errors" in name for metric, name in found)


def test_somebody_is_told_when_a_function_with_a_schedule_is_not_called(
    templates: Templates, local: Templates
) -> None:
    names = {
        templates.function_behind(each, "Target", "Arn").find("FunctionName")
        for each in templates.of("AWS::Scheduler::Schedule")
    }
    found = {name: each for (metric, name), each in alarms(templates).items() if metric == "Invocations"}
    assert names
    assert set(found) == (set() if templates is local else names)
    for alarm in found.values():
        assert (alarm.find("Statistic"), alarm.find("Threshold")) == ("Sum", 1)
        assert alarm.find("ComparisonOperator") == "LessThanThreshold"
        assert alarm.find("TreatMissingData") == "breaching"


def test_no_alarm_watches_what_is_not_there(templates: Templates) -> None:
    names = {
        each.find(name)
        for type, name in (
            ("AWS::SQS::Queue", "QueueName"),
            ("AWS::Lambda::Function", "FunctionName"),
            ("AWS::IoT::TopicRule", "RuleName"),
        )
        for each in templates.of(type)
    }
    namespaces = {
        each.find("MetricTransformations")[0]["MetricNamespace"]
        for each in templates.of("AWS::Logs::MetricFilter")
    }
    assert {watched(each) for each in plane_alarms(templates)} <= names | namespaces


def test_the_functions_own_figures_are_watched_by_the_names_they_have(templates: Templates) -> None:
    written = {each.value for kind in (Metric, Delay) for each in kind} | MARKED
    found = [each for each in plane_alarms(templates) if each.find("Namespace") == NAMESPACE]
    assert {each.find("MetricName") for each in found} <= written
    by_function = Counter(dimensions(each)["service"].split("-", 2)[2] for each in found)
    assert by_function["provisioning-hook"] == by_function["certificate-keeper"] == 1
    assert by_function["presence-timers"] == by_function["presence-reconciler"] == 2
    routers = [name for name in by_function if name.startswith("router-")]
    assert {by_function[name] for name in routers} == {5}
    assert {"router-device", "router-device-urgent"} <= set(routers)


def dimensions(alarm: Resource) -> dict[str, str]:
    return {each["Name"]: each["Value"] for each in alarm.find("Dimensions")}


def test_every_alarm_tells_the_topic_and_says_what_to_do(templates: Templates) -> None:
    (topic,) = templates.of("AWS::SNS::Topic")
    for alarm in plane_alarms(templates):
        assert alarm.find("AlarmActions") == alarm.find("OKActions") == [{"Ref": topic.id}], str(alarm)
        assert len(alarm.find("AlarmDescription")) > 20
        assert alarm.find("AlarmName").startswith(("eventplane-", "eventplane_"))


def test_alarms_may_publish_and_plain_http_may_not(dev: Templates) -> None:
    (policy,) = dev.of("AWS::SNS::TopicPolicy")
    by_effect = {each["Effect"]: each for each in policy.find("PolicyDocument")["Statement"]}
    assert by_effect["Allow"]["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert by_effect["Allow"]["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    assert by_effect["Deny"]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_the_audits_verdict_comes_from_the_line_that_it_writes(dev: Templates) -> None:
    totals = {"lost": 1, "findings": 2, "quarantined": 3}
    document = {"totals": totals, "window": {"date": "2026-03-01"}, "verdict": "broken", "lost_by_hop": {}}
    assert _read_by_filters(dev, "/audit", json.loads(totals_line(document))) == totals


def test_the_compaction_s_failures_come_from_the_line_that_it_writes(dev: Templates) -> None:
    line = json.loads(compaction.totals_line({}, {"tap/date=2026-03-01/hour=12": "damaged"}))
    assert _read_by_filters(dev, "/compaction", line) == {"failed": 1}


def _read_by_filters(dev: Templates, namespace: str, line: dict[str, Any]) -> dict[str, Any]:
    """What the metric filters of a namespace read in a line of a job's log."""
    read: dict[str, Any] = {}
    for each in dev.of("AWS::Logs::MetricFilter"):
        (transformation,) = each.find("MetricTransformations")
        if not transformation["MetricNamespace"].endswith(namespace):
            continue
        _, member, name = transformation["MetricValue"].split(".")
        assert each.find("FilterPattern").count(f"$.{member}.{name}") == 1
        read[transformation["MetricName"]] = line[member][name]
    return read


def test_no_verdict_is_no_good_news_where_the_audit_starts_by_itself(
    dev: Templates, local: Templates
) -> None:
    for templates, silence in ((dev, "breaching"), (local, "notBreaching")):
        verdicts = [
            each for each in plane_alarms(templates) if str(each.find("Namespace")).endswith("/audit")
        ]
        assert [each.find("TreatMissingData") for each in verdicts] == [silence] * 2
    triggers = {each.find("Name"): each.find("Schedule") for each in dev.of("AWS::Glue::Trigger")}
    assert set(triggers) == {"eventplane-dev-delivery-audit", "eventplane-dev-compaction"}
    assert all(each.startswith("cron(") for each in triggers.values())
    assert local.of("AWS::Glue::Trigger") == []


def test_production_also_audits_the_day_so_far_by_a_job_of_its_own(prod: Templates) -> None:
    started = {
        trigger.find("Actions")[0]["JobName"]: trigger.find("Schedule")
        for trigger in prod.of("AWS::Glue::Trigger")
    }
    assert started["eventplane-prod-delivery-audit"] == "cron(30 2 * * ? *)"
    assert started["eventplane-prod-audit-today"] == "cron(10 1-23 * * ? *)"
    days = {each.find("Name"): each.find("DefaultArguments", "--DATE") for each in prod.of("AWS::Glue::Job")}
    assert days["eventplane-prod-delivery-audit"] == "yesterday"
    assert days["eventplane-prod-audit-today"] == "today"


def test_the_verdicts_on_today_do_not_hide_that_yesterday_has_none(prod: Templates) -> None:
    logs = {each.id: each.find("LogGroupName") for each in prod.of("AWS::Logs::LogGroup")}
    fed_by: dict[str, set[str]] = {}
    for each in prod.of("AWS::Logs::MetricFilter"):
        (transformation,) = each.find("MetricTransformations")
        group = logs[each.find("LogGroupName")["Ref"]]
        fed_by.setdefault(transformation["MetricNamespace"], set()).add(group)
    assert fed_by["eventplane/prod/audit"] == {"/aws-glue/jobs/eventplane-prod-delivery-audit/output"}
    assert fed_by["eventplane/prod/audit-today"] == {"/aws-glue/jobs/eventplane-prod-audit-today/output"}
    silence = {each.find("AlarmName"): each.find("TreatMissingData") for each in plane_alarms(prod)}
    for name in ("findings", "quarantined"):
        assert silence[f"eventplane-prod-audit-{name}"] == "breaching"
        assert silence[f"eventplane-prod-audit-today-{name}"] == "notBreaching"


def test_one_dashboard_shows_every_queue_and_function(templates: Templates) -> None:
    (dashboard,) = templates.of("AWS::CloudWatch::Dashboard")
    body = json.dumps(dashboard.find("DashboardBody"))
    for type, name in (("AWS::SQS::Queue", "QueueName"), ("AWS::Lambda::Function", "FunctionName")):
        for each in templates.of(type):
            assert each.find(name) in body or each.find(name).endswith("-replies")


def test_the_dashboard_shows_every_alarm_in_widgets_that_cloudwatch_takes(templates: Templates) -> None:
    (dashboard,) = templates.of("AWS::CloudWatch::Dashboard")
    parts = dashboard.find("DashboardBody")["Fn::Join"][1]
    body = json.loads(
        "".join(each if isinstance(each, str) else next(iter(each.values()))[0] for each in parts)
    )
    shown = [each["properties"]["alarms"] for each in body["widgets"] if each["type"] == "alarm"]
    assert all(1 <= len(each) <= 100 for each in shown)
    assert sorted(chain.from_iterable(shown)) == sorted(each.id for each in plane_alarms(templates))


def test_the_dashboard_shows_figures_that_functions_write(templates: Templates) -> None:
    (dashboard,) = templates.of("AWS::CloudWatch::Dashboard")
    body = json.dumps(dashboard.find("DashboardBody"))
    shown = set(re.findall(rf'"{NAMESPACE}\W+(\w+)\W+service', body.replace("\\", "")))
    assert {"UrgentDeliveryDelay", "Delivered", "Acknowledged", "SpansLost"} <= shown
    assert "What endpoints did with events" in body
    assert shown <= {*Metric, *Delay}


def test_those_who_shall_know_are_subscribed(monkeypatch: pytest.MonkeyPatch, contract: Contract) -> None:
    told = replace(environment("dev"), alarm_emails=("ops@example.org",))
    monkeypatch.setitem(ENVIRONMENTS, "dev", told)
    (subscription,) = Templates("dev", contract).of("AWS::SNS::Subscription")
    assert (subscription.find("Protocol"), subscription.find("Endpoint")) == ("email", "ops@example.org")
