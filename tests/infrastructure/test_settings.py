"""Settings of environments: a value that cannot be deployed is refused by name, before any synthesis."""

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from edge.settings import HealthSettings
from eventplane.archive_layout import LEAST_RAW_DAYS
from eventplane.contract import Contract, ParticipantKind, compile_contract
from eventplane.contract.subscription import IN_FORCE_S
from eventplane.sinks import SinkReach, SinkScope, url_problem
from glue_jobs.delivery_audit.rules import LATE_DAYS
from lambdas.archive import ingest_errors, ledger, tap
from lambdas.common.aws import QUICK
from lambdas.downlink import items
from lambdas.router.payload import URGENT_MESSAGE_SECONDS
from lambdas.router.service import LIMITS, TimeLimits
from parts.presence import judge, recorder
from parts.webhooks import delivery
from stacks.bundling import ROOT
from stacks.config import ENVIRONMENTS, environment
from stacks.environment import LEAST_TIMEOUT_S, MAX_REFRESH_S
from stacks.settings import (
    AlarmSettings,
    CostSettings,
    EnvironmentSettingError,
    IncompleteEnvironmentError,
    ObjectLock,
    TracingSettings,
)
from tests.infrastructure.conftest import DOMAIN, NATS, changed

DEV, PROD = environment("dev"), environment("prod")
SIZE, PRESENCE, KEPT = DEV.router, DEV.presence, PROD.retention
COSTS = CostSettings(subscribers=("owner@example.org",), monthly_usd=120, anomaly_usd=25)
TRACING = TracingSettings(endpoint="http://localhost:4318")
LOCK = ObjectLock(mode="compliance", days=30)
CRONY = tuple(f"{each}@example.org" for each in range(11))


def locked(mode: Any, days: int) -> ObjectLock:
    return ObjectLock(mode=mode, days=days)


@pytest.mark.parametrize(
    ("settings", "setting", "value", "named"),
    [
        # What Lambda, or its mapping of SQS, would refuse.
        (SIZE, "memory_mib", 64, "memory_mib"),
        (SIZE, "timeout_s", 901, "timeout_s"),
        (SIZE, "batch_size", 0, "batch_size"),
        (SIZE, "batch_size", 11, "batch_window_s"),
        (SIZE, "batch_window_s", 301, "batch_window_s"),
        (SIZE, "max_concurrency", 1, "max_concurrency"),
        (SIZE, "visibility_factor", 0, "visibility_factor"),
        (PROD.urgent_router, "reserved_concurrency", 49, "reserved_concurrency"),
        # Old and new version are warm at once within what is reserved.
        (PROD.urgent_router, "provisioned_concurrency", 26, "provisioned_concurrency"),
        (PROD.urgent_router, "provisioned_concurrency", 0, "provisioned_concurrency"),
        # What Glue would refuse.
        (DEV.audit, "workers", 1, "workers"),
        (DEV.audit, "timeout_min", 0, "timeout_min"),
        (DEV.audit, "timeout_min", 10_081, "timeout_min"),
        (DEV.audit, "worker_type", "Standard", "worker_type"),
        (DEV.audit, "schedule", "daily", "schedule"),
        # An archive that forgets before the audit has read it, or keeps a person's events for too long.
        (KEPT, "raw_days", 15, "raw_days"),
        (KEPT, "compacted_days", KEPT.raw_days, "compacted_days"),
        (KEPT, "replaced_days", 0, "replaced_days"),
        (LOCK, "days", 31, "days"),
        (LOCK, "days", 0, "days"),
        (replace(KEPT, lock=LOCK), "replaced_days", 31, "replaced_days"),
        (KEPT, "lock", locked("governance", KEPT.compacted_days + 1), "lock.days"),
        # Presence that could not work.
        (PRESENCE, "disconnected_after_s", 0, "disconnected_after_s"),
        (PRESENCE, "connected_after_s", 86_401, "connected_after_s"),
        (PRESENCE, "oldest_urgent_s", -1, "oldest_urgent_s"),
        (PRESENCE, "oldest_normal_s", 0, "oldest_normal_s"),
        (PRESENCE, "quiet_after_heartbeats", 1, "quiet_after_heartbeats"),
        (PRESENCE, "reconciler", replace(SIZE, timeout_s=61), "reconciler"),
        (PRESENCE, "reconciler", replace(SIZE, timeout_s=19), "reconciler"),
        (PRESENCE, "timers", replace(SIZE, batch_window_s=1), "timers"),
        # Subscribers that nobody reaches, and a canary that cannot keep its times.
        (PROD.alarms, "page_subscribers", ("oncall",), "page_subscribers"),
        (PROD.alarms, "page_subscribers", ("http://pager.example.org",), "page_subscribers"),
        (PROD.alarms, "page_subscribers", ("https://10.0.0.1/",), "page_subscribers"),
        (PROD.alarms, "ticket_subscribers", ("a b@example.org",), "ticket_subscribers"),
        (PROD.alarms, "canary_every_min", 0, "canary_every_min"),
        (PROD.alarms, "canary_late_s", 51, "canary_late_s"),
        (PROD.alarms, "queues_every_min", 61, "queues_every_min"),
        # What AWS Budgets would refuse.
        (COSTS, "subscribers", (), "subscribers"),
        (COSTS, "subscribers", ("nobody",), "subscribers"),
        (COSTS, "subscribers", CRONY, "subscribers"),
        (COSTS, "monthly_usd", 0, "monthly_usd"),
        (COSTS, "anomaly_usd", -1, "anomaly_usd"),
        # A collector is beside the function, or speaks TLS; no URL shows a password.
        (TRACING, "endpoint", "http://collector.example.com", "endpoint"),
        (TRACING, "endpoint", "https://me:secret@collector.example.com", "endpoint"),
        (TRACING, "endpoint", "localhost:4318", "endpoint"),
        (TRACING, "share", -0.1, "share"),
        (TRACING, "share", 1.1, "share"),
        (TRACING, "collector_layer", "collector", "collector_layer"),
        (NATS, "url", "nats.example:4222", "url"),
        (NATS, "url", "nats://me:secret@nats.example", "url"),
        (NATS, "url", "nats://nats.example/stream", "url"),
        (NATS, "secret", "no name", "secret"),
        # A domain that AWS IoT would refuse.
        (DOMAIN, "name", "Devices", "name"),
        (DOMAIN, "certificate", "devices.pem", "certificate"),
        (environment("local"), "device_domain", DOMAIN, "device_domain"),
        (replace(PROD, region="eu-west-1"), "device_domain", DOMAIN, "device_domain.certificate"),
        # The environment itself.
        (DEV, "name", "Prod_1", "name"),
        (DEV, "name", "", "name"),
        (DEV, "devices", 0, "devices"),
        (DEV, "customer_key", "alias/ours", "customer_key"),
        (DEV, "certificate_grace_s", 901, "certificate_grace_s"),
        (DEV, "inbox_visibility_s", 1, "inbox_visibility_s"),
        (DEV, "inbox_visibility_s", 43_201, "inbox_visibility_s"),
        # Functions that may never have the time to begin.
        (DEV, "webhook", replace(DEV.webhook, timeout_s=59), "webhook"),
        (DEV, "router", replace(DEV.router, timeout_s=29), "router"),
        (DEV, "urgent_router", replace(DEV.urgent_router, timeout_s=11), "urgent_router"),
        (DEV, "archive_writer", replace(DEV.archive_writer, timeout_s=29), "archive_writer"),
        (DEV, "ingest_errors", replace(DEV.ingest_errors, timeout_s=19), "ingest_errors"),
        (DEV, "presence", replace(PRESENCE, timers=replace(SIZE, timeout_s=29)), "presence.timers"),
        (DEV, "presence", replace(PRESENCE, reconciler=replace(SIZE, timeout_s=29)), "presence.reconciler"),
        (DEV, "downlink", replace(DEV.downlink, reader=replace(SIZE, timeout_s=19)), "downlink.reader"),
        *((PROD, "rollout_minutes", minutes, "rollout_minutes") for minutes in (0, 1, 7, 60)),
        (environment("local"), "rollout_minutes", 5, "rollout_minutes"),
        (environment("local"), "costs", COSTS, "costs"),
        *((PROD, "sink_ports", ports, "sink_ports") for ports in ((), (0,), (65_536,))),
        # An emulated cloud posts to any address.
        (replace(PROD, rollout_minutes=None), "is_emulated", True, "is_emulated"),
        (PROD, "webhook_urls", {"a": "https://me:secret@a.example/"}, "webhook_urls['a']"),
        (PROD, "webhook_urls", {"a": "https://10.1.2.3/"}, "webhook_urls['a']"),
    ],
)
def test_a_bad_setting_is_refused_by_name(settings: Any, setting: str, value: object, named: str) -> None:
    with pytest.raises(EnvironmentSettingError) as caught:
        replace(settings, **{setting: value})
    assert caught.value.setting == named
    assert "secret@" not in str(caught.value)


@pytest.mark.source("F3")
@pytest.mark.parametrize("seconds", [0, MAX_REFRESH_S + 1])
def test_routers_have_to_look_often_enough(seconds: int) -> None:
    assert 3 * MAX_REFRESH_S <= IN_FORCE_S
    with pytest.raises(EnvironmentSettingError, match="contract_refresh_s"):
        replace(DEV, contract_refresh_s=seconds)


def test_every_function_has_time_to_begin_with_the_least_timeout() -> None:
    urgent = TimeLimits.of(QUICK, URGENT_MESSAGE_SECONDS)
    needed_ms = {
        "router": LIMITS.planning_ms,
        "device_router": LIMITS.planning_ms,
        "urgent_router": urgent.planning_ms,
        "replay": LIMITS.planning_ms,
        "archive_writer": tap.RESERVE_MS,
        "ledger_writer": ledger.RESERVE_MS,
        "ingest_errors": ingest_errors.RESERVE_MS,
        "webhook": delivery.RESERVE_MS + 30_000,
        "presence.recorder": recorder.RESERVE_MS,
        "presence.timers": judge.RESERVE_MS,
        "presence.reconciler": judge.RESERVE_MS,
        "downlink.reader": items.RESERVE_MS,
        "downlink.reconciler": items.RESERVE_MS,
    }
    assert needed_ms.keys() == LEAST_TIMEOUT_S.keys()
    for setting, needed in needed_ms.items():
        # A second, in which the function is called and reads its batch.
        assert 1_000 * (LEAST_TIMEOUT_S[setting] - 1) >= needed, setting


def test_values_at_their_limits_are_accepted() -> None:
    assert LEAST_RAW_DAYS > LATE_DAYS, "the audit finds what it reads"
    replace(KEPT, lock=LOCK)
    replace(KEPT, lock=locked("governance", KEPT.compacted_days))
    for endpoint in ("https://collector.example.com/otlp", "http://127.0.0.1:4318/"):
        assert TracingSettings(endpoint=endpoint).endpoint == endpoint
    other = replace(PROD, sink_ports=(443, 8443))
    url = "https://alarm-centre.example:8443/"
    assert replace(other, webhook_urls={"alarm-centre": url}).webhook_url("alarm-centre") == url
    assert other.sink_reach == SinkReach(SinkScope.INTERNET, (443, 8443))


def test_an_unknown_environment_is_one_error() -> None:
    variables = {**os.environ, "CDK_CONTEXT_JSON": json.dumps({"env": "nope"})}
    started = subprocess.run(
        [sys.executable, "app.py"], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    assert started.returncode == 1
    assert "'nope' is unknown; use ENV=NAME (make)" in started.stderr
    assert "local, dev, prod" in started.stderr
    assert "Traceback" not in started.stderr


def test_production_needs_a_pager_an_account_and_a_region() -> None:
    with pytest.raises(IncompleteEnvironmentError, match=r"stacks/environments\.toml") as caught:
        PROD.check_complete()
    assert caught.value.missing == ("account", "region", "alarms.page_subscribers")
    whole = PROD.with_placeholders()
    for setting, value in (("account", None), ("region", None), ("alarms", AlarmSettings())):
        with pytest.raises(IncompleteEnvironmentError, match=setting):
            replace(whole, **{setting: value}).check_complete()
    for each in (whole, DEV):
        each.check_complete()


@pytest.mark.parametrize(
    ("inbox", "problem"),
    [
        ({"webhook": {}}, r"webhook_urls of dev has no URL for alarm-centre, .* stacks/environments\.toml"),
        ({"transport": "nats"}, r"protocols of dev has none for nats, .* alarm-centre.inbox; .*toml"),
    ],
)
def test_an_inbox_needs_its_address(inbox: dict[str, Any], problem: str) -> None:
    with pytest.raises(EnvironmentSettingError, match=problem):
        DEV.check_urls(compile_contract(changed(alarm_centre={"inbox": inbox}), "test"))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_only_what_devices_send_without_urgency_waits_for_a_batch(name: str) -> None:
    found = environment(name)
    assert found.urgent_router.batch_window_s == found.router.batch_window_s == 0
    assert found.device_router.batch_window_s == (0 if found.is_emulated else 5)
    assert found.device_router.batch_size == (10 if found.is_emulated else 100)
    assert (found.keeps_data, found.is_emulated) == (name == "prod", name == "local")


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_no_device_that_gathers_a_batch_counts_as_quiet(name: str, contract: Contract) -> None:
    kinds = (ParticipantKind.DEVICE, ParticipantKind.DEVICE_SERVICE)
    on_device = [each for each in contract.participants.values() if each.kind in kinds]
    longest_s = max(each.outbox.batching_delay_ms for each in on_device) / 1_000
    (on_device_s,) = (each.default for each in fields(HealthSettings) if each.name == "normal_age_s")
    assert longest_s >= 60
    assert 2 * longest_s <= min(environment(name).presence.oldest_normal_s, on_device_s)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://alarm-centre.example/", "not https"),
        ("https://user:secret@alarm-centre.example/", "carries credentials"),
        ("https://token@alarm-centre.example/", "carries credentials"),
        ("https://alarm-centre.example/#part", "a fragment"),
        ("https://localhost/", "not on the internet"),
        ("https://alarm-centre/", "not on the internet"),
        ("https://db.internal/", "not on the internet"),
        ("https://-.example/", "not on the internet"),
        ("https://127.0.0.1/", "not a public address"),
        ("https://10.1.2.3/", "not a public address"),
        ("https://169.254.169.254/latest", "not a public address"),
        ("https://[::1]/", "not a public address"),
        ("https://[fd00::1]/", "not a public address"),
        ("https://[64:ff9b::a9fe:a9fe]/", "(NAT64)"),
        ("https://[2002:7f00:1::]/", "(6to4)"),
        ("https://[::ffff:8.8.8.8]/", "(IPv4-mapped)"),
        ("https://[2001:0:4136:e378::1]/", "(Teredo)"),
        ("https://[4000::1]/", "(reserved)"),
        ("https://224.0.0.1/", "(multicast)"),
        ("https://100.64.0.1/", "(carrier-grade NAT)"),
        ("https://0.0.0.0/", "(unspecified)"),
        ("https://240.0.0.1/", "(reserved)"),
        ("https://alarm-centre.example:8443/", "has port 8443, not one of: 443"),
        (f"https://alarm-centre.example:{'9' * 5_000}/", "not a URL"),
        ("https:///events", "not a URL"),
        ("https://alarm-centre.example:0/", "not a URL"),
        ("https://alarm-centre.example:99999/", "not a URL"),
        ("https://alarm-centre.example/a b", "not a URL"),
        ("https://alarm-centre.example/\r\nx: y", "not a URL"),
        ("alarm-centre.example", "not a URL"),
        ("", "not a URL"),
        ("https://alarm-centre.example:443/v1?site=7", None),
        ("https://93.184.215.14/", None),
        ("https://[2606:4700::1111]/", None),
    ],
)
def test_only_an_address_on_the_internet_is_posted_to(url: str, problem: str | None) -> None:
    found = url_problem(url, is_emulated=False)
    assert found is None if problem is None else problem in (found or "")


def test_an_emulated_environment_may_post_to_its_own_machine() -> None:
    for url in ("http://127.0.0.1:8080/", "https://localhost:8443/in"):
        assert url_problem(url, is_emulated=True) is None
    assert url_problem("gopher://localhost/", is_emulated=True) is not None
    assert "carries credentials" in (url_problem("http://a:b@localhost/", is_emulated=True) or "")
    assert environment("local").sink_reach.sinks is SinkScope.ANYWHERE
