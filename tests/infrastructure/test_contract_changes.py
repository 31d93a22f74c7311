"""The effect on a deployment of participants that come, retire and leave."""

import json

import pytest

from eventplane.function_settings import RouterSettings
from eventplane.limits import MAX_RECEIVES
from lambdas.router.wiring import Channels
from tests.infrastructure.templates import SCHEDULE, Templates, statements, words
from tests.infrastructure.test_monitoring import alarms


@pytest.mark.source("P2")
def test_a_new_service_needs_only_a_contract(dev: Templates, grown: Templates) -> None:
    inbox, letters = grown.queues["night-watch-inbox"], grown.queues["night-watch-inbox-dlq"]
    assert inbox.find("MessageRetentionPeriod") == 3_600
    assert inbox.find("RedrivePolicy", "maxReceiveCount") == MAX_RECEIVES
    # What follows an event that fails waits, and somebody has to know.
    blocked = alarms(grown)["ApproximateAgeOfOldestMessage", inbox.find("QueueName")]
    assert (blocked.find("Threshold"), blocked.find("EvaluationPeriods")) == (60, 1)
    mapping = grown.mappings["night-watch-outbox"]
    # All that Lambda takes from a FIFO queue.
    assert mapping.find("BatchSize") <= 10
    assert mapping.find("MaximumBatchingWindowInSeconds") is None
    assert set(grown.outputs("messaging")) - set(dev.outputs("messaging")) == {
        "NightWatchInboxUrl",
        "NightWatchOutboxUrl",
    }
    assert grown.mappings.keys() - dev.mappings.keys() == {"night-watch-outbox"}
    for box in (inbox, letters):
        assert box.find("FifoQueue") is True
        assert box.find("SqsManagedSseEnabled") is True
    assert inbox.find("FifoThroughputLimit") == "perMessageGroupId"
    assert inbox.find("DeduplicationScope") == "messageGroup"
    assert inbox.find("ContentBasedDeduplication") is None


def test_a_participant_changes_no_other_id(dev: Templates, grown: Templates, shrunk: Templates) -> None:
    came = grown.ids() - dev.ids()
    assert dev.ids() <= grown.ids()
    assert all("nightwatch" in each.lower().replace("-", "") for each in came), came

    left = {each for each in dev.ids() - shrunk.ids() if not each.startswith("monitoring/")}
    assert left
    own = ("familyapp", "downlink", "subscribers", "endpoints", "deviceinbox")
    assert all(any(name in each.lower().replace("-", "") for name in own) for each in left), left
    assert {each for each in shrunk.ids() if not each.startswith("monitoring/")} <= dev.ids()


def test_absent_parts_leave_nothing(shrunk: Templates) -> None:
    names = json.dumps([shrunk.documents["routing"], shrunk.documents["messaging"]])
    for name in ("device-inbox", "downlink", "subscribers-"):
        assert name not in names
    # Nothing posts to the endpoints of subscriptions.
    assert shrunk.functions["subscriptions-api"].variables["EVENTPLANE_SINKS"] == "nowhere"


def test_a_retired_service_keeps_its_queues(dev: Templates, retired: Templates) -> None:
    kept = {each for each in dev.queues if not each.startswith("canary-")}
    assert retired.queues.keys() == kept
    contract = retired.contract
    settings = retired.functions["router-services"].settings(RouterSettings)
    assert not {"family-app.inbox", "device.inbox"} & Channels.of(settings, contract).inboxes.keys()
    # What it has written already is still routed, and what is on its way down is still brought.
    assert {"family-app-outbox", "device-inbox"} <= retired.mappings.keys()
    writers = {
        each.id
        for each in retired.of("AWS::IAM::Role", "AWS::IAM::Policy")
        for statement in statements(each)
        if "sqs:SendMessage" in words(statement["Action"])
        and any(':eventplane-dev-device-inbox"' in each for each in words(statement["Resource"]))
    }
    # Its own reader, which sends itself the rest of what is for all devices.
    assert [each.startswith("DownlinkDesiredRole") for each in writers] == [True]
    assert retired.outputs("routing")["RetiredParticipants"] == "device,downlink,family-app"
    assert "RetiredParticipants" not in dev.outputs("routing")


def test_without_a_canary_every_queue_has_alarms_of_its_own(retired: Templates) -> None:
    found = alarms(retired)
    for name in retired.queues:
        full = retired.queues[name].find("QueueName")
        if "-dlq" in name:
            assert found["ApproximateNumberOfMessagesVisible", full].find("Threshold") == 0
        elif not name.endswith("-replies"):
            assert ("ApproximateAgeOfOldestMessage", full) in found
    assert not [each for each in retired.of(SCHEDULE) if "canary" in each.name]
