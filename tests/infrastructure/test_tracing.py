"""Which functions are told where to tell spans to, and what an environment may name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contract import load_contract
from stacks.config import environment
from stacks.settings import EnvironmentSettingError, TracingSettings
from tests.infrastructure.templates import Resource, Templates

LAYER = "arn:aws:lambda:eu-central-1:123456789012:layer:collector-amd64:7"


def routers(templates: Templates) -> list[Resource]:
    return [
        each
        for each in templates.of("AWS::Lambda::Function")
        if each.find("Handler") == "lambdas.router.handler.handle"
    ]


def test_by_default_nobody_is_told(prod: Templates) -> None:
    for each in prod.of("AWS::Lambda::Function"):
        assert "EVENTPLANE_OTLP_ENDPOINT" not in (each.find("Environment", "Variables") or {})


def test_the_routers_are_told_and_get_the_collector_beside_them() -> None:
    tracing = TracingSettings(endpoint="http://localhost:4318", share=0.5, collector_layer=LAYER)
    templates = Templates(replace(environment("dev"), tracing=tracing), load_contract())
    assert routers(templates)
    for each in routers(templates):
        variables = each.find("Environment", "Variables")
        assert variables["EVENTPLANE_OTLP_ENDPOINT"] == "http://localhost:4318"
        assert variables["EVENTPLANE_TRACE_SHARE"] == "0.5"
        assert LAYER in each.find("Layers")  # the CDK sorts them
        assert each.find("TracingConfig", "Mode") == "Active"
    told = [
        each
        for each in templates.of("AWS::Lambda::Function")
        if "EVENTPLANE_OTLP_ENDPOINT" in (each.find("Environment", "Variables") or {})
    ]
    assert len(told) == len(routers(templates))


@pytest.mark.parametrize("endpoint", ["https://collector.example.com/otlp", "http://127.0.0.1:4318/"])
def test_a_collector_is_beside_the_function_or_speaks_tls(endpoint: str) -> None:
    assert TracingSettings(endpoint=endpoint).endpoint == endpoint


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("endpoint", "http://collector.example.com"),
        ("endpoint", "https://me:secret@collector.example.com"),
        ("endpoint", "localhost:4318"),
        ("share", -0.1),
        ("share", 1.1),
        ("collector_layer", "collector"),
    ],
)
def test_what_cannot_be_is_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(EnvironmentSettingError, match=f"tracing.{setting}"):
        TracingSettings(**{"endpoint": "http://localhost:4318", setting: value})  # type: ignore[arg-type]
