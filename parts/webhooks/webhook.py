"""The entry of a webhook's function: posts the events of an inbox to an HTTPS endpoint, its consumer."""

from __future__ import annotations

import os
from typing import Final

from eventplane.settings import SettingsError, variable_of
from lambdas.common.contracts import bundled_contract
from lambdas.common.queue_function import QueueReader, queue_function
from parts.webhooks.settings import WebhookSettings
from parts.webhooks.wiring import Parts, own_machine

LETTER_SOURCE: Final = "/eventplane/cloud/webhook/"
"""The prefix of the `source` of its dead letters; the participant's name follows."""


def service() -> QueueReader:
    """Return the reader of the webhook's inbox. Raises `SettingsError`."""
    settings = WebhookSettings.read(os.environ)
    contract = bundled_contract()
    channel = contract.channel(settings.source)
    webhook = channel.webhook
    if webhook is None:
        raise SettingsError(variable_of("source"), f"names {settings.source}, which is no webhook")
    parts = Parts(settings, contract, channel, own_machine(settings.reach))
    source = f"{LETTER_SOURCE}{channel.participant}"
    return QueueReader(parts.service(settings.webhook_url, webhook, parts.signing_keys, source).process)


handle = queue_function(service)
