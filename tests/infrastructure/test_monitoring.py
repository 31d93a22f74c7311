"""Everything that goes wrong has an alarm, and no alarm watches what does not exist."""

import json
import re
from collections import Counter
from dataclasses import replace
from itertools import chain
from time import time
from typing import Any

from eventplane.contract import Contract, Priority
from glue_jobs.common.embedded_metrics import embedded
from glue_jobs.compaction import main as compaction
from glue_jobs.delivery_audit.main import totals_line
from lab.chaos.alarms import Metrics
from lambdas.common.metrics import Count, Delay, Gauge
from stacks.alarm_texts import alarm_texts
from stacks.bundling import ROOT
from stacks.constructs.figure_watches import NAMESPACE, SLO_DELAY_MS
from tests.infrastructure.templates import FUNCTION, QUEUE, RULE, SCHEDULE, Resource, Templates, joined

ALARM = "AWS::CloudWatch::Alarm"
JOB = "AWS::Glue::Job"

MARKED = {
    name
    for path in ("fleet/hook.py", "fleet/messages.py", "presence/judge.py")
    for name in re.findall(r'mark\("(\w+)"', (ROOT / "parts" / path).read_text())
}
"""Figures that are written one by one."""

DEAD_ENDS = ("ingest-errors", "presence-dlq", "connections-dlq", "downlink-work-dlq")
"""Queues for what a rule could not deliver."""


def plane_alarms(templates: Templates) -> list[Resource]:
    """Those that notify people; others roll back a deployment (tests/infrastructure/test_changes.py)."""
    found = templates.of(ALARM, stack="monitoring")
    return [each for each in found if not each.name.endswith("-rollout")]


def alarms(templates: Templates) -> dict[tuple[str, str], Resource]:
    """By each metric that one reads, and by the full name of what has it."""
    return {watched(each): alarm for alarm in plane_alarms(templates) for each in single(alarm)}


def dimensions(alarm: Resource) -> dict[str, str]:
    return {each["Name"]: each["Value"] for each in alarm.find("Dimensions") or []}


def single(alarm: Resource) -> list[Resource]:
    """The alarm as if it read one metric, for each that it fills in or combines."""
    stats = [each["MetricStat"]["Metric"] for each in alarm.find("Metrics") or [] if "MetricStat" in each]
    return [replace(alarm, properties={**alarm.properties, **each, "Metrics": None}) for each in stats] or [
        alarm
    ]


def watched(alarm: Resource) -> tuple[str, str]:
    """The metric of an alarm that reads one, and what has it."""
    if not alarm.find("Metrics"):
        own = dimensions(alarm)
        name = own.get("service") or next(iter(own.values()), str(alarm.find("Namespace")))
        return str(alarm.find("MetricName")), name
    (query,) = alarm.find("Metrics")
    asks = r"SELECT SUM\((\w+)\) FROM \"AWS/IoT\" WHERE RuleName = '(\w+)'"
    found = re.fullmatch(asks, query["Expression"])
    assert found
    assert (query["ReturnData"], query["Period"]) == (True, 300)
    return found[1], found[2]


def is_urgent(name: str, contract: Contract) -> bool:
    """Whether a queue, or the one that its dead letters are of, carries urgent events."""
    urgent = {
        channel.address.replace(".", "-")
        for each in contract.participants.values()
        for channel in (each.inbox, each.outbox)
        if channel.priority is Priority.URGENT
    }
    return name.removesuffix("-dlq") in urgent | {"ingest-urgent", "ingest-errors"}


def test_every_queue_is_watched(templates: Templates, dev: Templates, contract: Contract) -> None:
    found = alarms(templates)
    for name, queue in templates.queues.items():
        urgent, full = is_urgent(name, contract), queue.find("QueueName")
        if name.endswith("-replies") or "canary" in name:
            continue  # nobody waits for a late reply; the silence of the canary's reader pages
        if "-dlq" in name:
            # The canary counts what lies in all of them.
            if urgent and templates is not dev:
                alarm = found["ApproximateNumberOfMessagesVisible", full]
                assert (alarm.find("Threshold"), alarm.find("EvaluationPeriods")) == (0, 1)
        elif urgent or templates is not dev:
            alarm = found["ApproximateAgeOfOldestMessage", full]
            assert alarm.find("Threshold") == (60 if urgent else 900), name


def test_all_are_watched(templates: Templates, local: Templates, dev: Templates, prod: Templates) -> None:
    found = alarms(templates)
    account = "AWS/Lambda"
    assert ("Throttles", account) in found
    for function in templates.of(FUNCTION):
        assert ("Errors", function.find("FunctionName") if templates is prod else account) in found
    for rule in templates.of(RULE):
        errors = json.dumps(rule.find("TopicRulePayload", "ErrorAction"))
        assert any(errors.count(name) == 1 for name in DEAD_ENDS)
        name = rule.find("RuleName")
        if templates is dev and "ingest" not in name:
            continue
        deployed_wrong = ("RuleNotFound", "ParseError") if templates is prod else ()
        for metric in ("RuleMessageThrottled", *deployed_wrong):
            assert (metric, name) in found
        # The emulator has no alarms on queries.
        assert (("ErrorActionFailure", name) in found) == (templates is not local)
    assert any(metric == "NumberOfMessagesSent" and "ingest-errors" in name for metric, name in found)


def test_an_uncalled_function_has_an_alarm(templates: Templates, prod: Templates) -> None:
    names = {
        templates.function_behind(each, "Target", "Arn").find("FunctionName")
        for each in templates.of(SCHEDULE)
        # The canary's alarms stay away when nobody calls it; an audit without a snapshot is not `proven`.
        if not any(name in each.name for name in ("canary", "fleet-snapshot"))
    }
    found = {name: each for (metric, name), each in alarms(templates).items() if metric == "Invocations"}
    assert names
    assert set(found) == (names if templates is prod else set())
    for alarm in found.values():
        assert (alarm.find("Threshold"), alarm.find("ComparisonOperator")) == (1, "LessThanThreshold")


def metrics_of(job: Resource) -> str:
    """The namespace and the names of the metrics that CloudWatch makes of a job's log."""
    return str(job.find("DefaultArguments", "--METRICS"))


def test_no_alarm_watches_what_is_not_there(templates: Templates) -> None:
    kinds = {QUEUE: "QueueName", FUNCTION: "FunctionName", RULE: "RuleName"}
    there = {each.find(kinds[each.type]) for each in templates.of(*kinds)} | {"AWS/Lambda"}
    there |= {metrics_of(each).partition(":")[0] for each in templates.of(JOB)}
    there.add("MQTT")  # AWS IoT's own metrics
    there |= {each.variables.get("EVENTPLANE_METRICS_SERVICE") for each in templates.of(FUNCTION)}
    assert {name for _, name in alarms(templates)} <= there


def test_figures_are_watched_by_their_names(templates: Templates, dev: Templates) -> None:
    written = {each.value for kind in (Count, Delay, Gauge) for each in kind} | MARKED
    read = chain.from_iterable(map(single, plane_alarms(templates)))
    found = [each for each in read if each.find("Namespace") == NAMESPACE]
    assert {each.find("MetricName") for each in found} <= written
    by_service = Counter(dimensions(each)["service"].split("-", 2)[2] for each in found)
    is_dev = templates is dev
    expected = {"fleet": 2, "presence": 3, "downlink": 2 if is_dev else 3, "canary": 3 if is_dev else 2}
    expected |= {"router": 7, "router-urgent": 4, "archive": 1, "ingest-errors": 1, "http_sink": 2}
    assert {name: by_service[name] for name in expected} == expected


def topics(templates: Templates) -> dict[str, str]:
    """The name of each topic by its logical id: `page` or `ticket`."""
    return {each.id: each.name.rstrip("s") for each in templates.of("AWS::SNS::Topic")}


def test_every_alarm_notifies_one_topic_and_says_what_to_do(templates: Templates) -> None:
    assert set(topics(templates).values()) == {"page", "ticket"}
    for alarm in plane_alarms(templates):
        (topic,) = alarm.find("AlarmActions")
        assert topic["Ref"] in topics(templates)
        assert alarm.find("OKActions") == [topic], str(alarm)
        assert 40 < len(alarm.find("AlarmDescription")) <= 1_024
        assert alarm.find("AlarmName").startswith(("eventplane-", "eventplane_"))


def test_the_table_of_alarms_has_every_alarm_and_no_other(
    local: Templates, dev: Templates, prod: Templates, full: Templates, contract: Contract
) -> None:
    """Each entry of stacks/alarms.toml names alarms with their topics; the first that fits counts."""
    documented = [row for each in alarm_texts() for row in each.topics().items()]
    unseen = {name for name, _ in documented}
    for templates in (local, dev, prod, full):
        kinds = _kinds(templates, contract)
        for alarm in templates.of(ALARM):
            (action,) = alarm.find("AlarmActions") or [None]
            topic = "none" if action is None else topics(templates)[action["Ref"]]
            rows = [row for row in documented if _fits(row[0], alarm.name, kinds)]
            assert rows, f"{alarm.name} is missing in stacks/alarms.toml"
            assert rows[0][1] == topic, alarm.name
            unseen.discard(rows[0][0])
    assert not unseen, "stacks/alarms.toml names alarms that no environment has"


def _kinds(templates: Templates, contract: Contract) -> dict[str, set[str]]:
    """What the table's placeholders stand for, without project and environment."""
    queues = {each.name for each in templates.of(QUEUE)}
    rules = {each.name for each in templates.of(RULE)}
    return {
        "urgent queue": {each for each in queues if is_urgent(each, contract)},
        "queue": queues,
        "function": set(templates.functions),
        "service": {_service(each).replace("_", "-") for each in templates.of(FUNCTION)},
        "ingest rule": {each for each in rules if each.startswith("ingest")},
        "rule": rules,
    }


def _service(function: Resource) -> str:
    """The service whose metrics a function writes, without project and environment."""
    return str(function.variables["EVENTPLANE_METRICS_SERVICE"]).split("-", 2)[2]


def _fits(pattern: str, name: str, kinds: dict[str, set[str]]) -> bool:
    if not (found := re.fullmatch(r"<([^>]+)>(.+)", pattern)):
        return pattern == name
    kind, suffix = found.groups()
    return name.endswith(suffix) and name.removesuffix(suffix) in kinds[kind]


def test_what_endangers_alarms_pages(prod: Templates) -> None:
    told = {each.name: topics(prod)[each.find("AlarmActions")[0]["Ref"]] for each in plane_alarms(prod)}
    paging = {name for name, topic in told.items() if topic == "page"}
    lost = ("lost", "ErrorActionFailure")
    assert paging >= {f"{rule}-{each}" for rule in ("ingest", "ingest_urgent") for each in lost}
    assert paging >= {f"router-urgent-{each}" for each in ("urgent-delay", "contract-unseen", "retried")}
    assert paging >= {"ingest-urgent-age", "ingest-urgent-dlq-visible"}
    # What IoT Core acknowledged and its rule lost: no device sends it again.
    broken = {f"{each}-acknowledged-lost" for each in ("audit", "audit-today")}
    assert {each for each in paging if "audit" in each} == broken
    assert not any("presence" in each or "taken" in each for each in paging)
    assert paging >= {"fleet-outage", "connections-refused"}


def retries(templates: Templates) -> dict[str, tuple[int, int, int]]:
    """Period, number of periods and threshold of each alarm on messages that come again, by service."""
    return {
        service.split("-", 2)[2]: tuple(
            each.find(name) for name in ("Period", "EvaluationPeriods", "Threshold")
        )
        for (metric, service), each in alarms(templates).items()
        if metric == "Retried"
    }


def test_messages_that_come_again_raise_an_alarm(templates: Templates) -> None:
    """Partial responses leave `Errors` at 0, and a message received three times has no age."""
    assert retries(templates) == {
        "router-urgent": (60, 2, 0),
        "ingest-errors": (60, 3, 0),
        **dict.fromkeys(("router", "archive", "downlink", "http_sink"), (300, 3, 0)),
    }
    counting = {
        name
        for name, each in templates.functions.items()
        if str(each.variables.get("EVENTPLANE_METRICS_SERVICE")).endswith("-router-urgent")
    }
    assert counting == {"router-device-urgent"}


def test_an_endpoint_of_an_urgent_inbox_that_is_down_pages(full: Templates) -> None:
    assert retries(full)["http_sink-urgent"] == (60, 3, 0)
    paging = {
        each.name
        for each in plane_alarms(full)
        if topics(full)[each.find("AlarmActions")[0]["Ref"]] == "page"
    }
    assert paging >= {"http-sink-urgent-dead-lettered", "http-sink-urgent-retried"}


def test_alarms_cost_little(dev: Templates, prod: Templates) -> None:
    for templates, most in ((dev, 43), (prod, 121)):
        # CloudWatch bills each metric that an alarm reads.
        assert sum(len(single(each)) for each in plane_alarms(templates)) <= most


def test_alarms_may_publish_and_plain_http_may_not(dev: Templates) -> None:
    policies = dev.of("AWS::SNS::TopicPolicy")
    assert len(policies) == 2
    for policy in policies:
        by_effect = {each["Effect"]: each for each in policy.find("PolicyDocument")["Statement"]}
        allow, deny = by_effect["Allow"], by_effect["Deny"]
        assert allow["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
        assert allow["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
        assert deny["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_the_alarms_of_jobs_read_the_lines_that_they_write(dev: Templates) -> None:
    totals = {"lost": 1, "acknowledged_lost": 1, "findings": 2, "incomplete": 3, "unattested": 4}
    document = {
        "totals": totals, "window": {"date": "2026-03-01"}, "verdict": "broken", "lost_by_hop": {},
        "coverage": {"share": 0.5}, "reasons": ["1 event lost on the way: router."],
    }  # fmt: skip
    failed = compaction.totals_of({}, {"tap/date=2026-03-01/hour=12": "damaged"}, 0)
    audit, compacted = (metrics_of(dev.one(JOB, each)) for each in ("delivery-audit", "compaction"))
    metrics = Metrics()
    metrics.add_embedded(totals_line(document, audit))
    metrics.add_embedded(json.dumps(embedded(failed, compacted)))
    read = {
        name: metrics.within((namespace, name, frozenset()), 0, time() + 1)
        for name, namespace in alarms(dev)
        if namespace.startswith("eventplane/")
    }
    assert read == {"lost": [1], "acknowledged_lost": [1], "findings": [2], "incomplete": [3], "failed": [1]}


def test_jobs_start_by_themselves_but_not_on_one_machine(dev: Templates, local: Templates) -> None:
    triggers = {each.name: each.find("Schedule") for each in dev.of("AWS::Glue::Trigger")}
    assert set(triggers) == {"delivery-audit", "compaction"}
    assert all(each.startswith("cron(") for each in triggers.values())
    assert local.of("AWS::Glue::Trigger") == []


def test_production_audits_the_day_so_far(prod: Templates) -> None:
    triggers = prod.of("AWS::Glue::Trigger")
    started = {each.find("Actions")[0]["JobName"]: each.find("Schedule") for each in triggers}
    assert started["eventplane-prod-delivery-audit"] == "cron(30 2 * * ? *)"
    assert started["eventplane-prod-audit-today"] == "cron(10 1-23 * * ? *)"
    days = {each.name: each.find("DefaultArguments", "--DATE") for each in prod.of("AWS::Glue::Job")}
    assert (days["delivery-audit"], days["audit-today"]) == ("yesterday", "today")

    namespaces = {each.name: metrics_of(each).partition(":")[0] for each in prod.of(JOB)}
    assert namespaces["delivery-audit"] == "eventplane/prod/audit"
    assert namespaces["audit-today"] == "eventplane/prod/audit-today"
    names = {each.name for each in plane_alarms(prod)}
    assert {each for each in names if each.endswith("-missing")} == {"audit-missing", "compaction-missing"}


def widgets(templates: Templates) -> list[dict[str, Any]]:
    """The dashboard's, with an alarm's id where its ARN will be."""
    (dashboard,) = templates.of("AWS::CloudWatch::Dashboard")
    parts = dashboard.find("DashboardBody")["Fn::Join"][1]
    texts = (each if isinstance(each, str) else next(iter(each.values())) for each in parts)
    text = "".join(each if isinstance(each, str) else each[0] for each in texts)
    return json.loads(text)["widgets"]


def test_the_dashboard_shows_everything(templates: Templates, dev: Templates) -> None:
    shown = widgets(templates)
    in_widgets = [each["properties"]["alarms"] for each in shown if each["type"] == "alarm"]
    assert all(in_widgets)
    assert sorted(chain.from_iterable(in_widgets)) == sorted(each.id for each in plane_alarms(templates))
    drawn = {
        each["properties"]["title"]: each["properties"]["annotations"]["horizontal"][0]["value"]
        for each in shown
        if each["properties"].get("annotations")
    }
    assert drawn["Alarm to inbox p99, milliseconds"] == SLO_DELAY_MS
    if templates is dev:
        # CloudWatch takes $3 a month for a dashboard with more than 50 metrics.
        metrics = [each for widget in shown for each in widget["properties"].get("metrics", [])]
        assert 10 < len(metrics) <= 50
        return
    body = json.dumps(shown)
    for name in (*templates.queues, *templates.functions):
        assert name in body or name.endswith("-replies") or name in ("pages-dlq", "tickets-dlq")


def test_the_dashboard_shows_figures_that_functions_write(templates: Templates, dev: Templates) -> None:
    (dashboard,) = templates.of("AWS::CloudWatch::Dashboard")
    body = joined(dashboard.find("DashboardBody"))
    shown = set(re.findall(rf'"{NAMESPACE}\W+(\w+)\W+service', body))
    assert {"UrgentDeliveryDelay", "Delivered", "Acknowledged"} <= shown
    assert ("SpansLost" in shown) == (templates is not dev)
    assert "What endpoints did with events" in body
    assert shown <= {*Count, *Delay, *Gauge}
