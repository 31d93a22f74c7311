"""Schedules and other callers of functions, and the settings that functions get."""

import json
from dataclasses import asdict

import pytest

from eventplane.presence import BUCKETS
from tests.infrastructure.templates import MAPPING, SCHEDULE, Resource, Templates, granted


def schedule(templates: Templates, part: str) -> Resource:
    (found,) = (each for each in templates.of(SCHEDULE) if part in each.name)
    return found


@pytest.mark.source("K6", "P9")
@pytest.mark.parametrize("reconciler", ["downlink-reconcile", "presence-reconcile"])
def test_every_bucket_is_reconciled_once_a_minute(templates: Templates, reconciler: str) -> None:
    found = schedule(templates, reconciler)
    given = json.loads(found.find("Target", "Input"))
    assert given.pop("buckets") == list(range(BUCKETS))
    assert given == ({"overdue_ms": 60_000} if reconciler.startswith("presence") else {})
    assert found.find("ScheduleExpression") == "rate(1 minute)"
    # A run ends before the next begins.
    function = templates.function_behind(found, "Target", "Arn")
    assert function == templates.functions[f"{reconciler}r"]
    assert function.find("Timeout") < 60
    assert set(granted(templates, templates.role(found, "Target", "RoleArn"))) == {"lambda:InvokeFunction"}


def test_a_function_that_feeds_itself_has_a_bound_or_may_recur(templates: Templates) -> None:
    """AWS Lambda ends a chain of messages in which a function is called 16 times, for ever if not told."""
    fed = {
        queue: templates.function_behind(each, "FunctionName") for queue, each in templates.mappings.items()
    }
    reached = {
        name: {fed[to].name for to in templates.may(each).get("sqs:SendMessage", ()) if to in fed}
        for name, each in templates.functions.items()
    }
    # Also by way of others; what goes on by way of a router is a conversation (ADR 45).
    for between in (each for each in reached if not each.startswith("router-")):
        for found in (each for each in reached.values() if between in each):
            found |= reached[between]
    feeding = {name for name, found in reached.items() if name in found}
    # Pages are handed out side by side, checks end; a certificate's grace is one message.
    bounded = {"downlink-desired", "downlink-due", "certificate-keeper"}
    recurring = {each.name for each in templates.functions.values() if each.find("RecursiveLoop") == "Allow"}
    assert feeding - recurring == bounded
    assert {each for each in recurring if not each.startswith("router-")} == {"presence-timers"}
    assert {each for each in templates.functions if each.startswith("router-")} < recurring


@pytest.mark.source("P9")
def test_a_call_of_a_schedule_that_fails_is_not_repeated(templates: Templates) -> None:
    targets = templates.of(SCHEDULE)
    called = {str(templates.function_behind(each, "Target", "Arn")) for each in targets}
    configured = {
        str(templates.function_behind(each, "FunctionName")): (
            each.find("MaximumRetryAttempts"),
            each.find("MaximumEventAgeInSeconds"),
        )
        for each in templates.of("AWS::Lambda::EventInvokeConfig")
    }
    assert configured == dict.fromkeys(called, (0, 60))
    assert {each.find("Target")["RetryPolicy"]["MaximumRetryAttempts"] for each in targets} == {0}


@pytest.mark.source("P9")
def test_timers_start_by_hand_only_in_a_run_on_one_machine(templates: Templates, local: Templates) -> None:
    states = {each.find("State") for each in templates.of(SCHEDULE)}
    assert states == {"DISABLED" if templates is local else "ENABLED"}
    timers = templates.mappings["presence-timers"]
    assert templates.function_behind(timers, "FunctionName").name == "presence-timers"
    assert timers.find("Enabled") is (templates is not local)
    # Nothing between a deadline and its judge waits for a batch.
    assert not timers.find("MaximumBatchingWindowInSeconds")


@pytest.mark.source("P9")
def test_presence_functions_have_the_limits_of_their_environment(prod: Templates) -> None:
    told = {
        json.dumps(each.variables["EVENTPLANE_PRESENCE_LIMITS"])
        for name, each in prod.functions.items()
        if name.startswith("presence-")
    }
    (limits,) = (json.loads(json.loads(each)) for each in told)
    settings = prod.environment.presence
    assert limits.pop("quota") == asdict(settings.quota)
    assert limits.pop("outage") == asdict(settings.outage)
    assert limits == {name: getattr(settings, name) for name in limits}


def test_uplink_interest_looks_every_minute(full: Templates) -> None:
    found = schedule(full, "uplink-interest")
    assert (found.find("ScheduleExpression"), found.find("State")) == ("rate(1 minute)", "ENABLED")
    called = full.function_behind(found, "Target", "Arn")
    assert called == full.functions["uplink-interest"]
    assert called.find("Timeout") < 60


def test_only_the_emulated_cloud_lets_endpoints_be_anywhere(dev: Templates, local: Templates) -> None:
    for templates, where in ((dev, "internet"), (local, "anywhere")):
        for name in ("subscriptions-api", "subscribers"):
            assert templates.functions[name].variables["EVENTPLANE_SINKS"] == where


def test_only_routers_export_spans(full: Templates) -> None:
    tracing = full.environment.tracing
    assert tracing is not None
    told = {name for name, each in full.functions.items() if "EVENTPLANE_OTLP_ENDPOINT" in each.variables}
    assert told == {each for each in full.functions if each.startswith("router-")}
    for each in (full.functions[name] for name in told):
        assert each.variables["EVENTPLANE_OTLP_ENDPOINT"] == tracing.endpoint
        assert each.variables["EVENTPLANE_TRACE_SHARE"] == "0.5"
        assert tracing.collector_layer in each.find("Layers")
        assert each.find("TracingConfig", "Mode") == "Active"


TEMPLATE = "AWS::IoT::ProvisioningTemplate"


def test_provisioning_makes_an_active_thing(dev: Templates) -> None:
    (template,) = dev.of(TEMPLATE)
    body = json.loads(template.find("TemplateBody"))
    resources = [(each["Type"], each["Properties"]) for each in body["Resources"].values()]
    certificate = {"CertificateId": {"Ref": "AWS::IoT::Certificate::Id"}, "Status": "Active"}
    assert resources == [
        ("AWS::IoT::Thing", {"ThingName": {"Ref": "SerialNumber"}}),
        ("AWS::IoT::Certificate", certificate),
        ("AWS::IoT::Policy", {"PolicyName": dev.outputs("routing")["DevicePolicy"]}),
        ("AWS::IoT::Policy", {"PolicyName": "eventplane-dev-renewal"}),
    ]
    named = template.find("TemplateName"), dev.outputs("fleet")["ProvisioningTemplate"]
    assert named == ("eventplane-dev-fleet",) * 2


def test_only_this_template_asks_the_hook(templates: Templates) -> None:
    hook = templates.functions["provisioning-hook"]
    (template,) = templates.of(TEMPLATE)
    asked = template.find("PreProvisioningHook")
    assert asked["PayloadVersion"] == "2020-04-01"
    assert templates.function_behind(template, "PreProvisioningHook") == hook
    assert hook.find("Timeout") <= 5
    (permission,) = templates.of("AWS::Lambda::Permission", stack="fleet")
    assert templates.function_behind(permission, "FunctionName") == hook
    assert permission.find("Principal") == "iot.amazonaws.com"
    assert permission.find("SourceAccount") == {"Ref": "AWS::AccountId"}
    name = template.find("TemplateName")
    assert json.dumps(permission.find("SourceArn")).endswith(f':provisioningtemplate/{name}"]]}}')
    assert permission.id in template.attributes["DependsOn"]


def test_the_fleet_is_written_into_the_archive_several_times_a_day(templates: Templates) -> None:
    (schedule,) = templates.of(SCHEDULE, stack="fleet")
    called = templates.function_behind(schedule, "Target", "Arn")
    assert called.find("Handler") == "parts.fleet.snapshot.handle"
    assert schedule.find("ScheduleExpression") == "rate(360 minutes)"
    assert templates.outputs("fleet")["FleetSnapshotFunction"] == called.find("FunctionName")


def test_two_urgent_routers_are_warm_in_production(prod: Templates, dev: Templates) -> None:
    path = ("ProvisionedConcurrencyConfig", "ProvisionedConcurrentExecutions")
    versions = prod.of("AWS::Lambda::Version")
    warm = {prod.function_behind(each, "FunctionName").name: each.find(*path) for each in versions}
    assert {name: each for name, each in warm.items() if each} == {"router-device-urgent": 2}
    assert not any(each.find(*path) for each in dev.of("AWS::Lambda::Version"))
    assert {*warm} == {prod.function_behind(each, "FunctionName").name for each in prod.of(MAPPING)}
