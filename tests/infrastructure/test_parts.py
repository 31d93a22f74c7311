"""A plane has the parts that its environment asks for, or its participants need, and no others."""

import json
from dataclasses import replace

import pytest

from eventplane.contract import Contract
from eventplane.function_settings import LedgerWriterSettings
from lab.benchmarks.plane_size import smallest
from stacks.config import environment
from tests.infrastructure.templates import Templates
from tests.small_contract import with_changes


def test_the_smallest_plane_is_small() -> None:
    assert len(smallest().functions) == 6
    assert len(smallest().of()) <= 150


def test_production_rolls_out_in_25_minutes(prod: Templates) -> None:
    assert len(prod.of()) <= 450
    # The urgent router after the others of its stack; the stacks side by side.
    assert prod.rollout_minutes == 2 * prod.environment.rollout_minutes <= 25


@pytest.fixture(scope="module")
def plain(shrunk: Templates) -> Templates:
    """`shrunk` without the parts that an environment may leave out."""
    settings = replace(environment("dev"), parts=frozenset(), audit_deliveries=True)
    return Templates(settings, shrunk.contract)


def test_what_an_environment_leaves_out_is_gone_and_nothing_else(plain: Templates, shrunk: Templates) -> None:
    gone = shrunk.functions.keys() - plain.functions.keys()
    assert gone == {"provisioning-hook", "certificate-keeper", "fleet-snapshot"} | {
        "subscriptions-api",
        "discovery-api",
        "replay",
    }
    assert plain.ids() < shrunk.ids()
    text = json.dumps(plain.documents)
    for name in ("replay", "compaction-failed", "provisioning", "AWS::Glue::Table", "execute-api"):
        assert name in json.dumps(shrunk.documents)
        assert name not in text
    # What is there depends on no stack that is not.
    assert {"fleet", "registry", "subscriptions", "discovery"}.isdisjoint(plain.documents)


def test_an_environment_asks_for_the_list_of_deliveries(plain: Templates, shrunk: Templates) -> None:
    jobs = (each.one("AWS::Glue::Job", "delivery-audit") for each in (plain, shrunk))
    assert [each.find("DefaultArguments").get("--DELIVERIES") for each in jobs] == ["true", None]


def test_only_its_reader_writes_receipts(plain: Templates) -> None:
    readers = ("alarm-centre", "carers")
    unasked = {f"participants/{each}/inbox/receipts": False for each in readers}
    without = Templates(plain.environment, with_changes(plain.contract, unasked))
    asked = {f"{each}-receipts" for each in readers}
    assert plain.queues.keys() - without.queues.keys() == asked | {f"{each}-dlq" for each in asked}
    policies = plain.of("AWS::IAM::ManagedPolicy")
    for each in readers:
        writers = {one.name for one in policies if f"{each}-receipts" in json.dumps(one.properties)}
        assert writers == {f"{each}-client"}
    writer = plain.functions["ledger-writer"]
    may = plain.may(writer)
    assert may["sqs:ReceiveMessage"] == {"ledger", *asked}
    assert "/handovers/*" in may["s3:PutObject"]
    assert "/handovers/*" not in without.may(without.functions["ledger-writer"])["s3:PutObject"]
    assert writer.settings(LedgerWriterSettings).receipts_of == {
        f"eventplane-dev-{each}-receipts": f"{each}.inbox" for each in readers
    }


@pytest.mark.parametrize("part", ["fleet", "subscriptions_api"])
def test_a_needed_part_is_there(part: str, contract: Contract) -> None:
    settings = replace(environment("dev"), parts=frozenset())
    assert settings.has(part, contract)
    assert not settings.has("queries", contract)
