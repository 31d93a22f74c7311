"""Somebody is told of everything that goes wrong, and nothing is watched that does not exist."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import aws_cdk as cdk
import pytest

from eventplane.contract import Contract, ParticipantKind, Priority, load_compiled
from glue_jobs.compaction import main as compaction
from glue_jobs.delivery_audit.main import totals_line
from lambdas.common.metrics import Delay, Gauge, Metric
from stacks.application import build
from stacks.bundling import ROOT
from stacks.config import environment
from stacks.constructs.figure_watches import NAMESPACE, SLO_DELAY_MS
from stacks.settings import AlarmSettings, EnvironmentSettingError, IncompleteEnvironmentError
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
    found = [each for each in templates.of(ALARM) if each.stack == "monitoring"]
    return [each for each in found if not each.find("AlarmName").endswith("-rollout")]


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
    own = dimensions(alarm)
    return own.get("service") or next(iter(own.values()), str(alarm.find("Namespace")))


def test_every_queue_is_watched(templates: Templates, dev: Templates, contract: Contract) -> None:
    found = alarms(templates)
    for queue in templates.of("AWS::SQS::Queue"):
        name = queue.find("QueueName")
        urgent = is_urgent(name.removesuffix("-dlq"), contract)
        if name.endswith("-replies"):
            continue  # nobody is to look after replies that nobody waits for
        if "canary" in name:
            continue  # its reader's silence pages
        if "-dlq" in name:
            # The canary counts what lies in all of them.
            if urgent and templates is not dev:
                alarm = found["ApproximateNumberOfMessagesVisible", name]
                assert (alarm.find("Threshold"), alarm.find("EvaluationPeriods")) == (0, 1)
        elif urgent or templates is not dev:
            alarm = found["ApproximateAgeOfOldestMessage", name]
            assert alarm.find("Threshold") == (60 if urgent else 900), name


def test_without_a_canary_every_dead_letter_queue_has_an_alarm_of_its_own(contract: Contract) -> None:
    document = json.loads(contract.canonical)
    del document["routes"]["canary-to-canary"], document["participants"]["canary"]
    templates = Templates("dev", load_compiled(json.dumps(document).encode()))
    watched_queues = {
        (metric(each), watched(each), each.find("Threshold") == 0)
        for each in plane_alarms(templates)
        if each.find("Namespace") == "AWS/SQS"
    }
    names = {each.find("QueueName") for each in templates.of("AWS::SQS::Queue")}
    letters = {each for each in names if "-dlq" in each}
    assert letters
    assert {("ApproximateNumberOfMessagesVisible", each, True) for each in letters} <= watched_queues
    for each in names - letters:
        assert each.endswith("-replies") or ("ApproximateAgeOfOldestMessage", each, False) in watched_queues


def is_urgent(name: str, contract: Contract) -> bool:
    own = name.split("-", 2)[2]
    urgent = {
        channel.address.replace(".", "-")
        for each in contract.participants.values()
        for channel in (each.inbox, each.outbox)
        if channel.priority is Priority.URGENT
    }
    return own in urgent | {"ingest-urgent", "ingest-errors"}


def test_every_function_and_rule_is_watched(templates: Templates, local: Templates, dev: Templates) -> None:
    found = alarms(templates)
    account = "AWS/Lambda"
    assert ("Throttles", account) in found
    for function in templates.of("AWS::Lambda::Function"):
        assert ("Errors", account if templates is dev else function.find("FunctionName")) in found
    for rule in templates.of("AWS::IoT::TopicRule"):
        errors = json.dumps(rule.find("TopicRulePayload", "ErrorAction"))
        assert any(errors.count(name) == 1 for name in DEAD_ENDS)
        name = rule.find("RuleName")
        if templates is dev and "ingest" not in name:
            continue
        deployed_wrong = () if templates is dev else ("RuleNotFound", "ParseError")
        for metric in ("RuleMessageThrottled", *deployed_wrong):
            assert (metric, name) in found
        is_told = ("ErrorActionFailure", name) in found
        assert is_told == (templates is not local), "the emulator has no alarms on queries"
    assert any(metric == "NumberOfMessagesSent" and "ingest-errors" in name for metric, name in found)


def test_somebody_is_told_when_a_function_with_a_schedule_is_not_called(
    templates: Templates, local: Templates, dev: Templates
) -> None:
    names = {
        templates.function_behind(each, "Target", "Arn").find("FunctionName")
        for each in templates.of("AWS::Scheduler::Schedule")
        # The canary's alarms stay away when nobody calls it; an audit without a snapshot is not `proven`.
        if not any(name in each.find("Name") for name in ("canary", "fleet-snapshot"))
    }
    found = {name: each for (metric, name), each in alarms(templates).items() if metric == "Invocations"}
    assert names
    assert set(found) == (names if templates not in (local, dev) else set())
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
    services = {
        each.find("Environment", "Variables", "EVENTPLANE_METRICS_SERVICE")
        for each in templates.of("AWS::Lambda::Function")
    }
    whole_account = {"AWS/Lambda"}
    assert {
        watched(each) for each in plane_alarms(templates)
    } <= names | namespaces | services | whole_account


def test_the_functions_own_figures_are_watched_by_the_names_they_have(
    templates: Templates, dev: Templates
) -> None:
    written = {each.value for kind in (Metric, Delay, Gauge) for each in kind} | MARKED
    found = [each for each in plane_alarms(templates) if each.find("Namespace") == NAMESPACE]
    assert {each.find("MetricName") for each in found} <= written
    by_service = Counter(dimensions(each)["service"].split("-", 2)[2] for each in found)
    assert (by_service["fleet"], by_service["presence"]) == (2, 2)
    assert by_service["downlink"] == (2 if templates is not dev else 1)
    assert by_service["canary"] == (2 if templates is not dev else 3)
    assert (by_service["router"], by_service["router-urgent"]) == (6, 4)


def dimensions(alarm: Resource) -> dict[str, str]:
    return {each["Name"]: each["Value"] for each in alarm.find("Dimensions") or []}


def test_every_alarm_tells_one_topic_and_says_what_to_do(templates: Templates) -> None:
    topics = [{"Ref": each.id} for each in templates.of("AWS::SNS::Topic")]
    assert len(topics) == 2
    for alarm in plane_alarms(templates):
        (topic,) = alarm.find("AlarmActions")
        assert topic in topics
        assert alarm.find("OKActions") == [topic], str(alarm)
        assert len(alarm.find("AlarmDescription")) > 20
        assert alarm.find("AlarmName").startswith(("eventplane-", "eventplane_"))


def test_the_table_of_alarms_has_every_alarm_and_no_other(
    local: Templates, dev: Templates, prod: Templates, contract: Contract
) -> None:
    """Each row of docs/reference/alarms.md names alarms with their topics; the first that fits counts."""
    documented = list(_documented_alarms())
    unseen = {name for name, _ in documented}
    for name, templates in (("local", local), ("dev", dev), ("prod", prod)):
        topics = {
            each.id: each.find("TopicName").rsplit("-", 1)[1].rstrip("s")
            for each in templates.of("AWS::SNS::Topic")
        }
        kinds = _kinds(templates, contract)
        for alarm in templates.of(ALARM):
            own = re.sub(rf"^eventplane[-_]{name}[-_]", "", alarm.find("AlarmName"))
            (action,) = alarm.find("AlarmActions") or [None]
            topic = "none" if action is None else topics[action["Ref"]]
            rows = [row for row in documented if _fits(row[0], own, kinds)]
            assert rows, f"{own} is missing in docs/reference/alarms.md"
            assert rows[0][1] == topic, own
            unseen.discard(rows[0][0])
    assert not unseen, "docs/reference/alarms.md names alarms that no environment has"


def _documented_alarms() -> Iterator[tuple[str, str]]:
    """Yield the name of each alarm in the table, with its topic."""
    for line in (ROOT / "docs/reference/alarms.md").read_text().splitlines():
        if line.startswith("| `"):
            names, topics = line.split(" | ")[:2]
            # In parentheses is the setting that an alarm depends on.
            found = re.findall(r"`([^`]+)`", re.sub(r"\([^)]*\)", "", names))
            yield from zip(found, topics.split(", "), strict=True)


def _kinds(templates: Templates, contract: Contract) -> dict[str, set[str]]:
    """What the table's placeholders stand for, without project and environment."""
    queues = {each.find("QueueName") for each in templates.of("AWS::SQS::Queue")}
    urgent = {each for each in queues if is_urgent(each.removesuffix("-dlq"), contract)}
    functions = {each.find("FunctionName") for each in templates.of("AWS::Lambda::Function")}
    rules = {each.find("RuleName").split("_", 2)[2] for each in templates.of("AWS::IoT::TopicRule")}
    return {
        "urgent queue": {each.split("-", 2)[2] for each in urgent},
        "queue": {each.split("-", 2)[2] for each in queues},
        "function": {each.split("-", 2)[2] for each in functions if each},
        "ingest rule": {each for each in rules if each.startswith("ingest")},
        "rule": rules,
    }


def _fits(pattern: str, name: str, kinds: dict[str, set[str]]) -> bool:
    if not (found := re.fullmatch(r"<([^>]+)>(.+)", pattern)):
        return pattern == name
    kind, suffix = found.groups()
    return name.endswith(suffix) and name.removesuffix(suffix) in kinds[kind]


def test_what_endangers_peoples_alarms_pages_and_the_rest_are_tickets(prod: Templates) -> None:
    (pages,) = [each for each in prod.of("AWS::SNS::Topic") if each.find("TopicName").endswith("-pages")]
    paging = {
        each.find("AlarmName")
        for each in plane_alarms(prod)
        if each.find("AlarmActions") == [{"Ref": pages.id}]
    }
    ingest = ("eventplane_prod_ingest", "eventplane_prod_ingest_urgent")
    lost = ("RuleNotFound", "RuleMessageThrottled", "ParseError", "ErrorActionFailure")
    assert paging >= {f"{rule}-{metric}" for rule in ingest for metric in lost}
    urgent = ("urgent-delay", "contract-unseen", "retried")
    assert paging >= {f"eventplane-prod-router-urgent-{each}" for each in urgent}
    assert paging >= {"eventplane-prod-ingest-urgent-age", "eventplane-prod-ingest-urgent-dlq-visible"}
    # What IoT Core acknowledged and its rule lost: no device sends it again.
    broken = {f"eventplane-prod-{each}-acknowledged-lost" for each in ("audit", "audit-today")}
    assert {each for each in paging if "audit" in each} == broken
    assert not any("presence" in each or "taken" in each for each in paging)


def test_a_retried_urgent_message_pages_within_minutes(templates: Templates) -> None:
    """The review: partial responses leave `Errors` at 0, and no alarm read `Retried`."""
    (service,) = {name for (metric, name) in alarms(templates) if metric == "Retried"}
    alarm = alarms(templates)["Retried", service]
    assert service.endswith("-router-urgent")
    assert (alarm.find("Period"), alarm.find("EvaluationPeriods"), alarm.find("Threshold")) == (60, 2, 0)
    urgent = [
        each.find("FunctionName")
        for each in templates.of("AWS::Lambda::Function")
        if each.find("Environment", "Variables", "EVENTPLANE_METRICS_SERVICE") == service
    ]
    assert [each.rsplit("-", 2)[1:] for each in urgent] == [["device", "urgent"]]


def test_the_alarms_of_an_environment_for_tests_cost_little(
    dev: Templates, prod: Templates, contract: Contract
) -> None:
    # Alarms on the age and on the dead letters of its queues.
    of_each = 3 * len(list(contract.of_kind(ParticipantKind.CLOUD_SERVICE)))
    assert len(plane_alarms(dev)) <= 32
    assert len(plane_alarms(prod)) <= 83 + of_each


def test_alarms_may_publish_and_plain_http_may_not(dev: Templates) -> None:
    policies = dev.of("AWS::SNS::TopicPolicy")
    assert len(policies) == 2
    for policy in policies:
        by_effect = {each["Effect"]: each for each in policy.find("PolicyDocument")["Statement"]}
        allow, deny = by_effect["Allow"], by_effect["Deny"]
        assert allow["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
        assert allow["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
        assert deny["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_the_audits_verdict_comes_from_the_line_that_it_writes(dev: Templates) -> None:
    totals = {"lost": 1, "acknowledged_lost": 1, "findings": 2, "incomplete": 3, "unattested": 4}
    document = {
        "totals": totals, "window": {"date": "2026-03-01"}, "verdict": "broken", "lost_by_hop": {},
        "coverage": {"share": 0.5}, "reasons": ["1 event lost on the way: router."],
    }  # fmt: skip
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
        verdicts = {
            each.find("MetricName"): each.find("TreatMissingData")
            for each in plane_alarms(templates)
            if str(each.find("Namespace")).endswith("/audit")
        }
        # The tickets tell of a missing verdict; nobody is paged for it.
        missing = {"findings": silence, "incomplete": silence, "acknowledged_lost": "notBreaching"}
        assert verdicts == missing
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
    for name in ("findings", "incomplete"):
        assert silence[f"eventplane-prod-audit-{name}"] == "breaching"
        assert silence[f"eventplane-prod-audit-today-{name}"] == "notBreaching"


def test_one_dashboard_shows_every_queue_and_function(templates: Templates, dev: Templates) -> None:
    (dashboard,) = templates.of("AWS::CloudWatch::Dashboard")
    body = json.dumps(dashboard.find("DashboardBody"))
    if templates is dev:
        # CloudWatch takes $3 a month for a dashboard with more than 50 metrics.
        shown = [each for widget in widgets(dev) for each in widget["properties"].get("metrics", [])]
        assert 10 < len(shown) <= 50
        return
    for type, name in (("AWS::SQS::Queue", "QueueName"), ("AWS::Lambda::Function", "FunctionName")):
        for each in templates.of(type):
            assert each.find(name) in body or each.find(name).endswith("-replies")


def test_the_dashboard_shows_every_alarm_in_widgets_that_cloudwatch_takes(templates: Templates) -> None:
    shown = [each["properties"]["alarms"] for each in widgets(templates) if each["type"] == "alarm"]
    assert all(1 <= len(each) <= 100 for each in shown)
    assert sorted(chain.from_iterable(shown)) == sorted(each.id for each in plane_alarms(templates))


def widgets(templates: Templates) -> list[dict[str, Any]]:
    """The dashboard's, with an alarm's id where its ARN will be."""
    (dashboard,) = templates.of("AWS::CloudWatch::Dashboard")
    parts = dashboard.find("DashboardBody")["Fn::Join"][1]
    texts = (each if isinstance(each, str) else next(iter(each.values())) for each in parts)
    found: list[dict[str, Any]] = json.loads(
        "".join(each if isinstance(each, str) else each[0] for each in texts)
    )["widgets"]
    return found


def test_the_dashboard_draws_the_objectives(templates: Templates) -> None:
    drawn = {
        each["properties"]["title"]: each["properties"]["annotations"]["horizontal"][0]["value"]
        for each in widgets(templates)
        if each["properties"].get("annotations")
    }
    assert drawn["Alarm to inbox p99, milliseconds"] == SLO_DELAY_MS


def test_the_dashboard_shows_figures_that_functions_write(templates: Templates, dev: Templates) -> None:
    (dashboard,) = templates.of("AWS::CloudWatch::Dashboard")
    body = json.dumps(dashboard.find("DashboardBody"))
    shown = set(re.findall(rf'"{NAMESPACE}\W+(\w+)\W+service', body.replace("\\", "")))
    assert {"UrgentDeliveryDelay", "Delivered", "Acknowledged"} <= shown
    assert ("SpansLost" in shown) == (templates is not dev)
    assert "What endpoints did with events" in body
    assert shown <= {*Metric, *Delay, *Gauge}


def test_pages_and_tickets_have_subscribers_of_their_own(contract: Contract) -> None:
    told = AlarmSettings(
        page_subscribers=("https://events.example.org/integration/key/enqueue", "oncall@example.org"),
        ticket_subscribers=("team@example.org",),
    )
    templates = Templates(replace(environment("dev"), alarms=told), contract)
    topics = {each.id: each.find("TopicName") for each in templates.of("AWS::SNS::Topic")}
    found = {
        (topics[each.find("TopicArn")["Ref"]], each.find("Protocol"), each.find("Endpoint"))
        for each in templates.of("AWS::SNS::Subscription")
    }
    assert found == {
        ("eventplane-dev-pages", "https", "https://events.example.org/integration/key/enqueue"),
        ("eventplane-dev-pages", "email", "oncall@example.org"),
        ("eventplane-dev-tickets", "email", "team@example.org"),
    }


@pytest.mark.parametrize(
    "address", ["oncall", "http://pager.example.org", "https://10.0.0.1/", "a b@example.org"]
)
def test_a_subscriber_that_nobody_reaches_is_refused(address: str) -> None:
    with pytest.raises(EnvironmentSettingError, match=r"alarms\.page_subscribers") as caught:
        AlarmSettings(page_subscribers=(address,))
    assert caught.value.setting == "alarms.page_subscribers"


@pytest.mark.parametrize(
    ("setting", "value"), [("canary_every_min", 0), ("canary_late_s", 51), ("queues_every_min", 61)]
)
def test_a_canary_that_cannot_keep_its_times_is_refused(setting: str, value: int) -> None:
    with pytest.raises(EnvironmentSettingError, match=f"alarms.{setting}"):
        AlarmSettings(**{setting: value})


def test_production_is_not_synthesized_without_somebody_to_page_an_account_and_a_region(
    contract: Contract,
) -> None:
    """The review: prod paged nobody, and went wherever the credentials led."""
    with pytest.raises(IncompleteEnvironmentError, match=r"stacks/config\.py") as caught:
        build(cdk.App(), environment("prod"), contract)
    assert caught.value.missing == ("account", "region", "alarms.page_subscribers")
    whole = environment("prod").with_placeholders()
    for setting, value in (("account", None), ("region", None), ("alarms", AlarmSettings())):
        with pytest.raises(IncompleteEnvironmentError, match=setting):
            replace(whole, **{setting: value}).check_complete()
    whole.check_complete()
    environment("dev").check_complete()
