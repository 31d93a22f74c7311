"""The tables of the docs that are generated from the code."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from eventplane import function_settings
from eventplane.attributes import KNOWN
from eventplane.downlink import wire
from eventplane.names import ATTRIBUTES, EPOCH, ORDER, ORDER_EPOCH, SEQUENCE
from eventplane.sender import SENDER_ATTRIBUTES
from eventplane.webhooks import Scope, SinkReach
from tools.settings_file import documented, meanings
from tools.tables import attributes_table, environment_table, function_settings_table, limits_table


def test_a_constant_is_documented_by_the_text_below_it_however_it_is_declared() -> None:
    source = 'MAX_A = 2 * 1024\n"""Of A."""\nMAX_B: Final = 3\n"""Of\nB."""\n_HIDDEN = 4\n'
    assert documented(ast.parse(source).body) == {"MAX_A": "Of A.", "MAX_B": "Of B."}


@dataclass
class Base:
    a: int
    """Of a."""


@dataclass
class Derived(Base):
    b: int
    """Of b."""


def test_a_setting_is_documented_by_the_class_that_declares_it() -> None:
    assert meanings(Derived) == {"a": "Of a.", "b": "Of b."}


def test_limits_of_every_event_come_first_and_those_of_other_files_follow() -> None:
    rows = limits_table().splitlines()[2:]
    assert rows[0].startswith("| `MAX_EVENT_BYTES` | 98,304 | Largest event in JSON format, bytes.")
    files = [row.rsplit("`", 2)[1] for row in rows]
    assert files[: files.count("eventplane.limits")] == ["eventplane.limits"] * files.count(
        "eventplane.limits"
    )
    assert "eventplane.fleet" in files


def test_every_attribute_that_the_code_knows_is_in_the_reference() -> None:
    stamped = {*SENDER_ATTRIBUTES, EPOCH, SEQUENCE, ORDER, ORDER_EPOCH, *wire.RESERVED, "deadletterreason"}
    addressed = {"todevice", "togroup", "statekey", "stateversion", "stateuid", "statedelete"}
    assert KNOWN | stamped | addressed == set(ATTRIBUTES)
    assert "| `routerhops` | Integer |" in attributes_table()


def test_every_variable_that_the_stacks_write_is_in_the_reference() -> None:
    table = function_settings_table()
    settings = function_settings.WebhookSettings(
        reach=SinkReach(Scope.INTERNET),
        webhook_secret="secret",
        webhook_origin="origin",
        outbox_queue="outbox",
        dead_letter_queue="dead",
        concurrency=1,
        archive_bucket="archive",
        source="inbox",
        webhook_url="https://example.org",
    )
    assert all(f"`{name}`" in table for name in settings.variables())


def test_the_reference_of_environments_has_each_setting_with_its_meaning() -> None:
    table = environment_table()
    assert "| `certificate_grace_s` | `900` | seconds that a certificate stays valid" in table
    assert "| `router` | required | how the functions run;" in table
