"""The day with a real account: its order, its refusals, and that it leaves nothing after a failure."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import NoCredentialsError

from lab import smoke_aws
from lab.smoke_aws import AccountDay, DayError, cost_usd, main
from stacks.config import ENVIRONMENTS
from stacks.deployment import NotApprovedError, PlannedStack
from tests.fakes.client import ScriptedClient

STACK, QUEUE = "eventplane-dev-presence", "eventplane-dev-lifecycle"


class Account:
    """An account, and the commands that are run in it; one that begins with `breaks` fails."""

    def __init__(self, breaks: str = "nothing", stacks: Sequence[str] = ()) -> None:
        self.ran, self.said, self.queues, self.lost = [""], [""], list[str](), list[str]()
        self.stacks, self._breaks = dict.fromkeys(stacks, "CREATE_COMPLETE"), breaks
        self.day = AccountDay(ENVIRONMENTS["dev"], self.client, self.run, lambda _: None, self.said.append)

    def run(self, words: Sequence[str]) -> int:
        self.ran.append(line := " ".join(words))
        if words[1] == "deploy":
            is_taken = QUEUE in self.queues and self._breaks != "fail"
            self.stacks[STACK] = "ROLLBACK_COMPLETE" if is_taken else "CREATE_COMPLETE"
        if words[1] == "destroy":
            self.stacks.clear()
        return int(line.startswith(self._breaks))

    def client(self, service: str) -> Any:
        calls = SimpleNamespace(
            get_caller_identity=lambda: {"Account": "123456789012"},
            describe_stacks=self._described,
            create_queue=lambda **members: self.queues.append(members["QueueName"]),
            get_queue_url=lambda **members: {"QueueUrl": members["QueueName"]},
            delete_queue=lambda **members: self.queues.remove(members["QueueUrl"]),
            delete_item=lambda **members: self.lost.append(members["Key"]["thing"]["S"]),
        )
        return ScriptedClient(service, calls)

    def _described(self, **members: str) -> Any:
        named = {members["StackName"]: self.stacks.get(members["StackName"], "")} if members else self.stacks
        return {"Stacks": [{"StackName": name, "StackStatus": each} for name, each in named.items()]}


@pytest.fixture(autouse=True)
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"Table": {"Type": "AWS::DynamoDB::Table"}}
    monkeypatch.setattr(
        smoke_aws, "planned_stacks", lambda _: [PlannedStack(STACK, None, frozenset({QUEUE}), table)]
    )


def test_the_day_has_its_order() -> None:
    account = Account()
    account.day.check({}, "synth")
    account.day.take("synth", keeps=True)
    words = ["synth", "deploy", "deploy", "smoke", "fleet", "restore", "fleet", "destroy"]
    assert [each.split()[1] for each in account.ran[1:]] == words
    assert (account.queues, account.stacks, account.lost) == ([], {}, ["smoke-aws-restored"])


BREAKS = {
    "synth": "make synth",
    "fail": "fail",
    "deploy": "make deploy",
    "smoke": "make smoke",
    "restore": "eventplane restore",
}


@pytest.mark.parametrize("step", BREAKS)
def test_a_failure_leaves_nothing(step: str) -> None:
    account = Account(BREAKS[step])
    with pytest.raises(DayError):
        account.day.take("synth", keeps=False)
    assert account.ran[-1] == "make destroy ENV=dev YES=dev"
    assert (account.queues, account.stacks) == ([], {})
    assert any(each.startswith(f"{step}: FAILED: ") for each in account.said)


def test_an_interrupt_leaves_nothing() -> None:
    account = Account()
    account.day.sleep = lambda _: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        account.day.take("fail", keeps=False)
    assert (account.queues, account.stacks) == ([], {})


def test_a_kept_plane_says_how_to_go_on() -> None:
    account = Account("make smoke")
    with pytest.raises(DayError, match="make smoke ENV=dev YES=dev ended with status 1"):
        account.day.take("deploy", keeps=True)
    assert STACK in account.stacks
    assert account.said[-1].endswith("make smoke-aws FROM=smoke, or make destroy")


@pytest.mark.parametrize(
    ("stack", "chosen", "variables", "problem"),
    [
        ("", "dev", {"AWS_ENDPOINT_URL": "http://localhost"}, "an emulated cloud; unset it"),
        ("", "prod", {}, "prod is no environment to throw away; use ENV=dev"),
        ("", "local", {}, "local is no environment to throw away"),
        ("eventplane-prod-archive", "dev", {}, r"is that of prod; .*AWS_PROFILE"),
        (STACK, "dev", {}, "deployed: make destroy ENV=dev, or .*FROM=deploy"),
    ],
)
def test_a_wrong_account_is_refused(stack: str, chosen: str, variables: Any, problem: str) -> None:
    day = Account(stacks=[stack]).day
    day.chosen = ENVIRONMENTS[chosen]
    with pytest.raises(DayError, match=problem):
        day.check(variables, "synth")


def test_it_asks_before_it_spends(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account()
    monkeypatch.setattr(smoke_aws, "session_in", lambda _: account)
    with pytest.raises(NotApprovedError, match="give YES=dev to make"):
        main(["dev", "--yes", "prod"], {})
    with pytest.raises(SystemExit):
        main(["dev", "--from", "lunch"], {})
    assert 0.5 < cost_usd(ENVIRONMENTS["dev"]) < 5


def test_without_credentials_nothing_begins() -> None:
    def refuse() -> None:
        raise NoCredentialsError

    day = AccountDay(ENVIRONMENTS["dev"], lambda _: SimpleNamespace(get_caller_identity=refuse))
    with pytest.raises(NoCredentialsError):
        day.check({}, "synth")
