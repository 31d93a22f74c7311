"""A contract with a webhook: what it gets, what it may do, and what an environment has to say for it."""

from __future__ import annotations

import json
import string
from dataclasses import replace
from typing import Any

import pytest

from contract import load_contract
from eventplane.contract import Contract, compile_contract
from eventplane.webhooks import SinkReach, SinkScope, url_problem
from stacks.config import ENVIRONMENTS, environment
from stacks.settings import EnvironmentSettingError
from tests.infrastructure.templates import Templates

URL = "https://events.alarm-centre.example/v1?site=7"
NAME = "eventplane-dev-alarm-centre-webhook"
FUNCTION = "webhook-alarm-centre"


def contract_with(**inbox: Any) -> Contract:
    document = json.loads(load_contract().canonical)
    document["participants"]["alarm-centre"]["inbox"] = {"priority": "urgent", "webhook": {}, **inbox}
    return compile_contract(document, "test")


def templates_of(contract: Contract, name: str = "dev") -> Templates:
    return Templates(replace(environment(name), webhook_urls={"alarm-centre": URL}), contract)


@pytest.fixture(scope="module")
def hooked() -> Templates:
    return templates_of(contract_with())


def test_a_webhook_adds_a_function_its_mapping_and_its_key_and_moves_nothing(
    hooked: Templates, dev: Templates
) -> None:
    assert dev.ids() <= hooked.ids()
    added = [each.type for each in hooked.of() if str(each) in hooked.ids() - dev.ids()]
    assert sorted(added) == [
        "AWS::IAM::Policy",
        "AWS::IAM::Role",
        "AWS::Lambda::Alias",
        "AWS::Lambda::EventSourceMapping",
        "AWS::Lambda::Function",
        "AWS::Logs::LogGroup",
        "AWS::SecretsManager::Secret",
    ]
    assert hooked.outputs("messaging")["AlarmCentreWebhookSecret"] == NAME


def test_the_function_knows_its_endpoint_and_reads_its_own_inbox_only(hooked: Templates) -> None:
    function = hooked.function(FUNCTION)
    variables = function.find("Environment", "Variables")
    assert variables["EVENTPLANE_WEBHOOK_URL"] == URL
    assert variables["EVENTPLANE_WEBHOOK_SECRET"] == NAME
    assert variables["EVENTPLANE_SOURCE"] == "alarm-centre.inbox"
    (mapping,) = (
        each
        for each in hooked.of("AWS::Lambda::EventSourceMapping")
        if hooked.function_behind(each, "FunctionName") == function
    )
    assert json.dumps(mapping.find("EventSourceArn")).endswith(':eventplane-dev-alarm-centre-inbox"]]}')
    assert mapping.find("FunctionResponseTypes") == ["ReportBatchItemFailures"]
    concurrency = mapping.find("ScalingConfig", "MaximumConcurrency")
    assert variables["EVENTPLANE_CONCURRENCY"] == str(concurrency)


def test_the_function_may_do_what_it_does_and_nothing_else(hooked: Templates) -> None:
    may = hooked.may(hooked.function(FUNCTION))
    # Those of its source queue.
    for action in ("ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl"):
        assert may.pop(f"sqs:{action}") == {"alarm-centre-inbox"}
    assert may == {
        "s3:PutObject": {"/handovers/*"},
        "secretsmanager:GetSecretValue": {"alarm-centre-webhook-??????"},
        "sqs:ReceiveMessage": {"alarm-centre-inbox"},
        "sqs:SendMessage": {"alarm-centre-outbox", "alarm-centre-inbox-dlq"},
    }


def test_the_key_is_made_by_aws_and_stays_in_production() -> None:
    templates = templates_of(contract_with(), "prod")
    secrets = templates.of("AWS::SecretsManager::Secret")
    assert [each.find("Name") for each in secrets] == [
        "eventplane-prod-alarm-centre-webhook",
        "eventplane-prod-subscribers-webhook",
    ]
    for secret in secrets:
        assert secret.stack == "messaging"
        assert secret.find("GenerateSecretString") == {
            "PasswordLength": 64,
            "ExcludeCharacters": string.punctuation,
        }
        assert secret.find("SecretString") is None
        assert secret.attributes["DeletionPolicy"] == "RetainExceptOnCreate"


@pytest.mark.parametrize("transport", ["sqs", "sqs_fifo"])
def test_the_inbox_hides_a_message_for_six_timeouts_and_counts_a_day_of_attempts(transport: str) -> None:
    templates = templates_of(contract_with(transport=transport))
    (inbox,) = (
        each
        for each in templates.of("AWS::SQS::Queue")
        if each.find("QueueName").removesuffix(".fifo") == "eventplane-dev-alarm-centre-inbox"
    )
    function = templates.function(FUNCTION)
    assert inbox.find("VisibilityTimeout") >= 6 * function.find("Timeout")
    assert inbox.find("RedrivePolicy", "maxReceiveCount") == 1_000


def test_an_environment_without_the_address_is_told_what_is_missing() -> None:
    with pytest.raises(
        EnvironmentSettingError, match=r"webhook_urls of dev has no URL for alarm-centre, .* stacks/config.py"
    ):
        Templates("dev", contract_with())


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_function_has_time_for_the_longest_attempt_and_what_follows(name: str) -> None:
    size = environment(name).webhook
    with pytest.raises(EnvironmentSettingError, match="less than 60"):
        replace(environment(name), webhook=replace(size, timeout_s=59))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://alarm-centre.example/", "not https"),
        ("ftp://alarm-centre.example/", "not https"),
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
        ("https://[fd00::1]/", "not a public address"),
        ("https:///events", "not a URL"),
        ("https://alarm-centre.example:0/", "not a URL"),
        ("https://alarm-centre.example:99999/", "not a URL"),
        ("https://alarm-centre.example/a b", "not a URL"),
        ("https://alarm-centre.example/\r\nx: y", "not a URL"),
        ("alarm-centre.example", "not a URL"),
        ("", "not a URL"),
    ],
)
def test_an_address_that_must_not_be_posted_to_is_refused(url: str, said: str) -> None:
    assert said in (url_problem(url, is_emulated=False) or "")
    with pytest.raises(EnvironmentSettingError) as caught:
        replace(environment("prod"), webhook_urls={"alarm-centre": url})
    assert caught.value.setting == "webhook_urls['alarm-centre']"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", [URL, "https://alarm-centre.example:443/", "https://93.184.215.14/", "https://[2606:4700::1111]/"]
)
def test_an_address_on_the_internet_is_taken(url: str) -> None:
    assert url_problem(url, is_emulated=False) is None


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/", "https://localhost:8443/in"])
def test_an_emulated_environment_may_post_to_its_own_machine(url: str) -> None:
    assert url_problem(url, is_emulated=True) is None
    assert url_problem("gopher://localhost/", is_emulated=True) is not None
    assert "carries credentials" in (url_problem("http://a:b@localhost/", is_emulated=True) or "")


def test_the_ports_of_endpoints_are_a_setting_that_all_functions_get() -> None:
    other = replace(environment("prod"), sink_ports=(443, 8443))
    url = "https://alarm-centre.example:8443/"
    assert url_problem(url, is_emulated=False, ports=other.sink_ports) is None
    assert replace(other, webhook_urls={"alarm-centre": url}).webhook_url("alarm-centre") == url
    assert other.sink_reach == SinkReach(SinkScope.INTERNET, (443, 8443))
    for wrong in ((), (0,), (65_536,)):
        with pytest.raises(EnvironmentSettingError, match="sink_ports"):
            replace(environment("prod"), sink_ports=wrong)


def test_an_environment_that_keeps_data_cannot_post_to_any_address() -> None:
    with pytest.raises(EnvironmentSettingError, match="posts to any address"):
        replace(environment("prod"), is_emulated=True, rollout_minutes=None)
    assert environment("local").sink_reach.sinks is SinkScope.ANYWHERE
