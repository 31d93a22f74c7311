"""The list of the product's calls of AWS: what is one, and that no service is left out."""

import re

import pytest

from tests.lost_answers.sites import PACKAGES, ROOT, SERVICES, call_sites, sites_in


@pytest.mark.parametrize(
    ("call", "operation"),
    [
        ("self._sqs.send_message(QueueUrl=url, MessageBody=body)", "send_message"),
        ("s3.get_paginator('list_objects_v2').paginate(Bucket=name)", "list_objects_v2"),
        ("self._each(sqs.delete_message_batch, messages)", "delete_message_batch"),
        ("publisher.publish(topic, payload)", None),
        ("names.copy()", None),
    ],
)
def test_a_call_site_is_known(call: str, operation: str | None) -> None:
    found = list(sites_in(f"class Of:\n    def work(self):\n        {call}\n", "of.py"))
    assert [(each.function, each.operation) for each in found] == (
        [("Of.work", operation)] if operation else []
    )


@pytest.mark.long
def test_no_service_is_left_out() -> None:
    made = re.compile(r"""\b(?:client|aws_client|clients|OnDemand)\(\s*"([a-z-]+)\"""")
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    assert {name for file in files for name in made.findall(file.read_text())} <= set(SERVICES)
    assert len(call_sites()) > 100
