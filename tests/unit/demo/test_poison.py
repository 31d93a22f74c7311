"""The malformed messages: each is refused for the reason that the demo expects."""

from __future__ import annotations

import pytest

from eventplane.contract import Contract
from local.poison import SCHEMAS, cloud_payloads
from local.poison import TYPE as READING

SOURCE = "/homes/home-01/health-service"


@pytest.mark.source("P11")
def test_both_versions_and_a_payload_that_fits_neither_are_sent(contract: Contract) -> None:
    payloads = cloud_payloads(SOURCE)
    versions = {each.attributes.get("dataschema") for sent in payloads for each in sent.good}
    assert versions == {None, *SCHEMAS} == {None, *contract.event_types[READING].schemas}
    assert [each.reason for sent in payloads for each in sent.poison].count("payload_invalid") == 1
