"""With the customer's key, what holds events is encrypted with it, and only who must may use it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from contract import load_contract
from stacks.config import ENVIRONMENTS, environment
from tests.infrastructure.templates import Templates, granted

KEY = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"


@pytest.fixture(scope="module")
def templates() -> Templates:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENVIRONMENTS, "prod", replace(environment("prod"), customer_key=KEY))
        return Templates("prod", load_contract())


def test_queues_archive_and_alarms_use_it(templates: Templates) -> None:
    for queue in templates.of("AWS::SQS::Queue"):
        assert queue.find("KmsMasterKeyId") == KEY, str(queue)
        assert queue.find("KmsDataKeyReusePeriodSeconds") == 3_600
    for bucket in templates.of("AWS::S3::Bucket"):
        (rule,) = bucket.find("BucketEncryption", "ServerSideEncryptionConfiguration")
        assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}
        assert rule["BucketKeyEnabled"] is True
    topics = templates.of("AWS::SNS::Topic")
    assert topics
    assert {each.find("KmsMasterKeyId") for each in topics} == {KEY}


def test_who_reads_or_writes_queues_or_the_archive_may_use_it_and_nobody_else(templates: Templates) -> None:
    without = set()
    for role in templates.of("AWS::IAM::Role"):
        may = granted(templates, role)
        if any(action.startswith(("sqs:", "s3:")) for action in may):
            assert may["kms:Decrypt"] == may["kms:GenerateDataKey"] == [KEY], str(role)
        else:
            assert not [action for action in may if action.startswith("kms:")], str(role)
            without.add(role.stack)
    assert {"fleet", "discovery", "subscriptions"} <= without


def test_without_it_nobody_is_granted_any(prod: Templates) -> None:
    assert "kms" not in json.dumps(prod.documents)
