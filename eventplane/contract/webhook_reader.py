"""The settings of a webhook: an inbox whose consumer is an HTTPS endpoint.

Where the endpoint is does not stand here: the contract is one for all environments, addresses are not.
"""

from __future__ import annotations

from eventplane.contract.model import Webhook
from eventplane.contract.reader import Section
from eventplane.contract.settings import Number, Word
from eventplane.contract.vocabulary import ParticipantKind, WebhookMode

MODE = Word(WebhookMode, WebhookMode.STRUCTURED, "the event as the body, or its attributes as headers")

NUMBERS = {
    "timeout_s": Number(10, 1, 30, "seconds", "how long one attempt may take in all"),
    # One day of attempts, at most 300 s apart, stays within the receives that SQS can count (1,000).
    "give_up_after_s": Number(
        86_400, 60, 86_400, "seconds", "age in the inbox at which a failing event becomes a dead letter"
    ),
    "requests_per_minute": Number(None, 1, 60_000, "requests", "most requests to the endpoint in a minute"),
}

_ELSEWHERE = {
    "url": "name it under `webhook_urls` of each environment in stacks/config.py",
    "secret": "leave it out: the stacks make one for each webhook, `aws secretsmanager` changes it",
}
"""What belongs to an environment and is often looked for here, with where it stands instead."""


def read_webhook(kind: ParticipantKind, box: str, retention_s: int, channel: Section) -> Webhook | None:
    """The webhook of an inbox, None where it has none; faults go where the section's faults go."""
    if channel.raw("webhook") is None:
        return None
    section = channel.section("webhook")
    if kind is not ParticipantKind.CLOUD_SERVICE or box != "inbox":
        channel.fault(
            "webhook", "only the inbox of a cloud_service can lead to an HTTPS endpoint", "remove it here"
        )
    for name, remedy in _ELSEWHERE.items():
        if section.raw(name) is not None:
            section.fault(name, "it differs between environments, the contract does not", remedy)
    webhook = Webhook(
        mode=MODE.read("mode", section),
        timeout_s=NUMBERS["timeout_s"].read("timeout_s", section) or 0,
        give_up_after_s=NUMBERS["give_up_after_s"].read("give_up_after_s", section) or 0,
        requests_per_minute=NUMBERS["requests_per_minute"].read("requests_per_minute", section),
    )
    section.finish()
    if webhook.give_up_after_s >= retention_s:
        section.fault(
            "give_up_after_s",
            f"the queue forgets an event after {retention_s} s, before it can become a dead letter",
            "make it less than the inbox's `retention_s`",
        )
    return webhook
