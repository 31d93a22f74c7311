"""Policies are detached before their deletion, and only those of the environment that is named."""

from __future__ import annotations

import pytest

from stacks.detach import NotConfirmedError, attachments, detach
from tests.fakes.iot import FakeIot


@pytest.fixture
def iot() -> FakeIot:
    """Two devices of dev, one of prod."""
    fake = FakeIot()
    for name in ("eventplane-dev-device", "eventplane-dev-renewal", "eventplane-prod-device", "mine"):
        fake.create_policy(policyName=name, policyDocument="{}")
    for policies in (("dev-device", "dev-renewal"), ("dev-device",), ("prod-device",)):
        target = fake.create_keys_and_certificate(setAsActive=True)["certificateArn"]
        for each in policies:
            fake.attach_policy(policyName=f"eventplane-{each}", target=target)
    return fake


@pytest.mark.lost_answers
def test_only_the_named_environment_is_detached(iot: FakeIot) -> None:
    assert detach(iot, "dev", lambda _: "dev") == 2
    assert list(attachments(iot, "dev")) == []
    assert len(list(attachments(iot, "prod"))) == 1
    assert detach(iot, "dev", lambda _: pytest.fail("nothing is attached")) == 0


def test_nothing_is_detached_without_a_confirmation(iot: FakeIot) -> None:
    with pytest.raises(NotConfirmedError, match="'dev'"):
        detach(iot, "dev", lambda _: "y")
    assert len(list(attachments(iot, "dev"))) == 3
