"""The demo's cloud services, over a queue in memory."""

from hashlib import sha256

from eventplane.envelope import write_event
from lab.consumers import UNREADABLE, Consumers
from lab.oracle import judge
from tests.fakes.sqs import FakeSqs


def test_malformed_bodies_stop_nothing() -> None:
    names = {"id": "1", "source": "/homes/h/health-service", "type": "org.eventplane.health.reading.v1"}
    good = write_event(names, {"value": 1})
    letter = write_event({**names, "type": "org.eventplane.deadletter.v1"}, {"value": 1})
    no_time = '{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"never"}'
    bad = [no_time, "no JSON", "{}", '{"specversion":"1.0"}', letter.json.replace('"value"', '"nothing"')]
    sqs = FakeSqs()
    url = str(sqs.create_queue(QueueName="care")["QueueUrl"])
    for body in (*bad, good.json):
        sqs.send_message(QueueUrl=url, MessageBody=body)

    with Consumers({"care-analytics": url}, lambda: sqs) as consumers:
        assert consumers.wait_until(lambda: consumers.received_total == len(bad) + 1, 20.0)

    (verdict,) = judge({"care-analytics": {good.claim}}, consumers.arrived)
    assert verdict.delivered == 1
    assert set(verdict.unexpected) == {(UNREADABLE, sha256(each.encode()).hexdigest()) for each in bad}
