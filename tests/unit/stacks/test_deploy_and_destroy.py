"""What is deployed and destroyed is confirmed by name; policies are detached before their deletion."""

from __future__ import annotations

import pytest

from local.deploy import DEPLOY, ROOT
from stacks.deployment import NotConfirmedError
from stacks.detach import attachments, detach
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
    assert detach(iot, "dev", yes="dev") == 2
    assert list(attachments(iot, "dev")) == []
    assert len(list(attachments(iot, "prod"))) == 1
    assert detach(iot, "dev", lambda _: pytest.fail("nothing is attached")) == 0


def test_nothing_is_detached_without_a_confirmation(iot: FakeIot) -> None:
    def nobody(_: str) -> str:
        raise EOFError

    def closed(_: str) -> str:
        raise RuntimeError("input(): lost sys.stdin")

    for ask in (lambda _: "y", nobody, closed):
        with pytest.raises(NotConfirmedError, match=r"'dev'.*YES=dev"):
            detach(iot, "dev", ask)
    with pytest.raises(NotConfirmedError):
        detach(iot, "dev", yes="prod")
    assert len(list(attachments(iot, "dev"))) == 3


def test_tests_deploy_with_the_words_of_make_deploy() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (words,) = (each.split() for each in makefile.splitlines() if each.startswith("\tcdk deploy "))
    assert words[1:] == [*DEPLOY[:2], "--app", "cdk.out", *DEPLOY[2:]]
