"""The tables of the docs that are generated from the code."""

import tomllib

from eventplane.downlink.addressing import ATTRIBUTES
from eventplane.sinks import SinkReach, SinkScope
from lab.tools.tables import ATTRIBUTES as MEANINGS
from lab.tools.tables import attributes_table, function_settings_table
from parts.webhooks.settings import WebhookSettings


def test_every_attribute_that_the_code_knows_is_in_the_reference() -> None:
    assert set(tomllib.loads(MEANINGS.read_text())) == ATTRIBUTES
    assert "| `routerhops` | Integer |" in attributes_table()


def test_every_variable_that_the_stacks_write_is_in_the_reference() -> None:
    table = function_settings_table()
    settings = WebhookSettings(
        reach=SinkReach(SinkScope.INTERNET),
        webhook_secret="secret",
        webhook_origin="origin",
        outbox_queue="outbox",
        dead_letter_queue="dead",
        concurrency=1,
        archive_bucket="archive",
        endpoints_table="endpoints",
        source="inbox",
        webhook_url="https://example.org",
    )
    assert all(f"`{name}`" in table for name in settings.variables())
