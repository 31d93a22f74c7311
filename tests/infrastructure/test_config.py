"""Environments are typed, checked and named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields, replace

import pytest

from contract import load_contract
from edge.settings import HealthSettings
from eventplane.archive_layout import LEAST_RAW_DAYS
from eventplane.contract import ParticipantKind
from eventplane.contract.subscription import IN_FORCE_S
from eventplane.fleet import BUCKETS
from glue_jobs.delivery_audit.rules import LATE_DAYS
from stacks.bundling import ROOT
from stacks.config import ENVIRONMENTS, UnknownEnvironmentError, environment
from stacks.environment import MAX_REFRESH_S
from stacks.settings import EnvironmentSettingError


def test_an_unknown_environment_is_told_the_known_ones() -> None:
    with pytest.raises(UnknownEnvironmentError, match=r"'test' is unknown; .* local, dev, prod") as caught:
        environment("test")
    assert (caught.value.name, caught.value.known) == ("test", ("local", "dev", "prod"))


def test_the_app_says_what_to_do_without_a_traceback() -> None:
    started = subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env={**os.environ, "CDK_CONTEXT_JSON": json.dumps({"env": "nope"})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode == 1
    assert "'nope' is unknown; use ENV=NAME (make)" in started.stderr
    assert "Traceback" not in started.stderr


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_resources_carry_the_environment_in_their_names(name: str) -> None:
    assert environment(name).resource_name("tap") == f"eventplane-{name}-tap"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("memory_mib", 64),
        ("timeout_s", 901),
        ("batch_size", 0),
        ("batch_window_s", 301),
        ("max_concurrency", 1),
        ("visibility_factor", 0),
    ],
)
def test_a_function_that_lambda_would_refuse_is_refused_here(setting: str, value: int) -> None:
    with pytest.raises(EnvironmentSettingError) as caught:
        replace(environment("dev").router, **{setting: value})
    assert caught.value.setting == setting


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("workers", 1),
        ("timeout_min", 0),
        ("timeout_min", 10_081),
        ("worker_type", "Standard"),
        ("schedule", "daily"),
    ],
)
def test_a_job_that_glue_would_refuse_is_refused(setting: str, value: object) -> None:
    with pytest.raises(EnvironmentSettingError) as caught:
        replace(environment("dev").audit, **{setting: value})  # type: ignore[arg-type]
    assert caught.value.setting == setting


@pytest.mark.source("F3")
@pytest.mark.parametrize("seconds", [0, MAX_REFRESH_S + 1])
def test_routers_that_look_too_seldom_for_what_subscribers_are_promised_are_refused(seconds: int) -> None:
    assert 3 * MAX_REFRESH_S <= IN_FORCE_S
    with pytest.raises(EnvironmentSettingError) as caught:
        replace(environment("dev"), contract_refresh_s=seconds)
    assert caught.value.setting == "contract_refresh_s"


@pytest.mark.parametrize(
    ("setting", "value"), [("raw_days", 15), ("compacted_days", 21), ("replaced_days", 0)]
)
def test_an_archive_that_forgets_before_the_audit_is_refused(setting: str, value: int) -> None:
    with pytest.raises(EnvironmentSettingError) as caught:
        replace(environment("dev").retention, **{setting: value})
    assert caught.value.setting == setting


def test_the_audit_finds_what_it_reads() -> None:
    assert LEAST_RAW_DAYS > LATE_DAYS


def test_a_large_batch_needs_a_window() -> None:
    with pytest.raises(EnvironmentSettingError, match="batch_window_s must be 1 or more"):
        replace(environment("dev").router, batch_size=11)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_only_what_devices_send_without_urgency_waits_for_company(name: str) -> None:
    found = environment(name)
    assert found.urgent_router.batch_window_s == found.router.batch_window_s == 0
    assert found.device_router.batch_window_s == (0 if found.is_emulated else 5)
    assert found.device_router.batch_size == (10 if found.is_emulated else 100)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_no_device_that_gathers_counts_as_quiet(name: str) -> None:
    contract = load_contract()
    on_device = [
        each for each in contract.participants.values() if each.kind is not ParticipantKind.CLOUD_SERVICE
    ]
    longest_s = max(each.outbox.batching_delay_ms for each in on_device) / 1_000
    assert longest_s >= 60
    assert 2 * longest_s <= environment(name).presence.oldest_normal_s
    assert 2 * longest_s <= field_default(HealthSettings, "normal_age_s")


def field_default(settings: type, name: str) -> float:
    (found,) = (each.default for each in fields(settings) if each.name == name)
    return float(found)


def test_what_is_reserved_for_a_function_is_enough_for_its_queue() -> None:
    with pytest.raises(EnvironmentSettingError, match="must not be below max_concurrency"):
        replace(environment("prod").urgent_router, reserved_concurrency=49)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("name", "Prod_1"),
        ("name", ""),
        ("customer_key", "alias/ours"),
        ("certificate_grace_s", 901),
        ("inbox_visibility_s", 1),
        ("inbox_visibility_s", 43_201),
    ],
)
def test_an_environment_that_cannot_be_deployed_is_refused(setting: str, value: object) -> None:
    with pytest.raises(EnvironmentSettingError) as caught:
        replace(environment("dev"), **{setting: value})  # type: ignore[arg-type]
    assert caught.value.setting == setting


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("disconnected_after_s", 0),
        ("connected_after_s", 86_401),
        ("oldest_urgent_s", -1),
        ("oldest_normal_s", 0),
        ("quiet_after_heartbeats", 1),
        ("reconciler", replace(environment("dev").router, timeout_s=61)),
        ("reconciler", replace(environment("dev").router, timeout_s=19)),
        ("timers", replace(environment("dev").router, batch_window_s=1)),
    ],
)
def test_presence_that_could_not_work_is_refused(setting: str, value: object) -> None:
    with pytest.raises(EnvironmentSettingError) as caught:
        replace(environment("dev").presence, **{setting: value})  # type: ignore[arg-type]
    assert caught.value.setting == setting


@pytest.mark.parametrize("reconcilers", range(1, BUCKETS + 1))
def test_every_device_belongs_to_one_reconciler(reconcilers: int) -> None:
    shares = replace(environment("dev").downlink, reconcilers=reconcilers).shares
    assert len(shares) == reconcilers
    assert sorted(bucket for share in shares for bucket in share) == list(range(BUCKETS))


def test_only_production_keeps_data_and_only_the_emulator_speaks_plain_http() -> None:
    assert [each.name for each in ENVIRONMENTS.values() if each.keeps_data] == ["prod"]
    assert [each.name for each in ENVIRONMENTS.values() if each.is_emulated] == ["local"]
