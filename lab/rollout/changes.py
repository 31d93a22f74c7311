"""Small changes of the shipped contract: harmful ones that events show, those that none shows, harmless ones.

A change is what `tests.small_contract.with_changes` takes. Schemas are those of the compiled form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_ALARM: Final = "org.eventplane.alarm."
_KEYWORD: Final = "org.eventplane.alarm.keyword.v1"
_CLINICAL: Final = "org.eventplane.alarm.clinical.v1"
_READING: Final = "org.eventplane.health.reading.v1"
_MOTION: Final = "org.eventplane.activity.motion.v1"
_CLIMATE: Final = "org.eventplane.climate.reading.v1"
_CALL: Final = "org.eventplane.call.placed.v1"


def _schema(id: str, *required: str, **properties: Any) -> list[dict[str, Any]]:
    dialect = "https://json-schema.org/draft/2020-12/schema"
    named = {"$schema": dialect, "$id": f"https://schemas.example/{id}.v1.json"}
    return [{**named, "type": "object", "required": [*required], "properties": properties}]


def _but(*types: str) -> dict[str, Any]:
    """Return the filter of what goes up, without some types more."""
    left_out = [{"prefix": {"type": "org.eventplane.home."}}, *({"exact": {"type": each}} for each in types)]
    return {"all": [{"prefix": {"type": "org.eventplane."}}, {"not": {"any": left_out}}]}


_DOWN: Final = (
    "org.eventplane.device.contract.v1",
    "org.eventplane.device.interest.v1",
    "org.eventplane.conversation.reply.v1",
)

HARMFUL: Final[dict[str, Mapping[str, Any]]] = {
    "a filter that misses one kind of alarm": {
        "routes/alarms-to-alarm-centre/filter": {"exact": {"type": _KEYWORD}}
    },
    "a filter that misses alarms without a subject": {
        "routes/alarms-to-alarm-centre/filter": {
            "all": [{"prefix": {"type": _ALARM}}, {"prefix": {"subject": "/"}}]
        }
    },
    "the alarms' route is gone": {"routes/alarms-to-alarm-centre": None},
    "alarms go to another inbox": {"routes/alarms-to-alarm-centre/to": "care-analytics.inbox"},
    "relatives see no alarms": {
        "routes/daily-life-to-family/filter": {"prefix": {"type": "org.eventplane.activity."}}
    },
    "a service may not send its alarm": {"participants/health-service/sends": [_READING]},
    "a service may not send its readings": {"participants/health-service/sends": [_CLINICAL]},
    "a service may not send movements": {
        "participants/activity-service/sends": ["org.eventplane.activity.door.v1"]
    },
    "a schema asks for what readings do not have": {
        f"event_types/{_READING}/schema_check": "strict",
        f"event_types/{_READING}/schemas": _schema("strict", "origin"),
    },
    "a schema asks for what alarms do not have": {
        f"event_types/{_KEYWORD}/schema_check": "strict",
        f"event_types/{_KEYWORD}/schemas": _schema("room", "room"),
    },
    "a schema knows other states of a sensor": {
        f"event_types/{_MOTION}/schema_check": "strict",
        f"event_types/{_MOTION}/schemas": _schema("state", "state", state={"enum": ["still", "moving"]}),
    },
    "alarms expire within a minute": {"participants/alarm-centre/inbox/expiry_s": 60},
    "readings expire before their batch is decided": {"participants/care-analytics/inbox/expiry_s": 1},
    "alarms are no longer urgent": {f"event_types/{_KEYWORD}/priority": "normal"},
    "readings have the schema of another type": {
        f"event_types/{_CLIMATE}/schema_check": "strict",
        f"event_types/{_CLIMATE}/schemas": _schema("keyword", "keyword"),
    },
    "alarms are delivered at best effort": {
        "participants/alarm-centre/inbox/delivery_guarantee": "best_effort",
        "participants/alarm-centre/inbox/receipts": None,
    },
    "readings stay at home": {"routes/everything-to-cloud/filter": _but(*_DOWN, _READING)},
    "one route promises alarms less": {"routes/alarms-to-alarm-centre/delivery_guarantee": "best_effort"},
    "the call service gets no alarms": {"routes/alarms-to-call-service": None},
    "readings have no reader": {
        "routes/readings-to-care-analytics/filter": {"prefix": {"type": "org.eventplane.activity."}}
    },
    "movements come five minutes late": {"participants/activity-service/outbox/batching_delay_ms": 300_000},
    "relatives see no movements": {"routes/daily-life-to-family/filter": {"prefix": {"type": _ALARM}}},
}  # fmt: skip

_ZIGBEE: Final[Mapping[str, Any]] = {
    "event_types/org.eventplane.light.v1": {"description": "A lamp."},
    "participants/zigbee": {
        "kind": "device_service", "description": "Lamps.", "sends": ["org.eventplane.light.v1"],
        "mappings": {"lamp": {
            "topic": "zigbee/{room}/lamp", "type": "org.eventplane.light.v1", "when": {"/on": True},
            "attributes": {"subject": "{room}"}, "data": {"level": {"pointer": "/level"}},
        }},
    },
}  # fmt: skip
_LAMP: Final = "participants/zigbee/mappings/lamp"
_POSTED: Final[Mapping[str, Any]] = {
    "participants/carers/inbox": {"webhook": {"requests_per_minute": 600, "timeout_s": 20}}
}
_HOOK: Final = "participants/carers/inbox/webhook"
_ORDER: Final = "participants/care-analytics/inbox/ordering"
_SORTED: Final[Mapping[str, Any]] = {
    _ORDER: "source", "participants/care-analytics/inbox/events_per_message": None,
}  # fmt: skip
_HOME: Final = "org.eventplane.home"
_CENTRE: Final = "participants/alarm-centre/inbox"
_REPLIES: Final[Mapping[str, Any]] = {"routes/replies-to-carers": None, "participants/carers/asks": None}

UNSEEN: Final[dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]]] = {
    f"reader:{_HOME}.message.v1:voice-service.inbox": ({}, {"routes/messages-to-voice-service": None}),
    "reader:org.eventplane.notice.carer.v1:carers.inbox": ({}, {"routes/notices-to-carers": None}),
    "reader:org.eventplane.deadletter.v1:operations.inbox": ({}, {"routes/dead-letters-to-operations": None}),
    "reader:org.eventplane.airquality.reading.v1:device.outbox": (
        {}, {"routes/everything-to-cloud/filter": _but(*_DOWN, "org.eventplane.airquality.reading.v1")},
    ),
    f"reader:{_HOME}.threshold.v1:device.inbox": (
        {}, {"routes/down-to-devices/filter": {"prefix": {"type": "org.eventplane.device."}}},
    ),
    f"right:{_HOME}.message.v1:carers": (
        {}, {**_REPLIES, "participants/carers/sends": [f"{_HOME}.threshold.v1"]},
    ),
    f"down:{_HOME}.message.v1": ({}, {f"event_types/{_HOME}.message.v1/downlink": "state"}),
    f"down:{_MOTION}": ({}, {"routes/down-to-devices/filter": {"prefix": {"type": "org.eventplane."}}}),
    f"payload:{_HOME}.message.v1": ({}, {f"event_types/{_HOME}.message.v1/schemas": _schema("m", "colour")}),
    f"floor:event_types.{_MOTION}.priority": ({}, {f"event_types/{_MOTION}/priority": "urgent"}),
    f"priority:{_READING}": ({}, {f"event_types/{_READING}/priority": "low"}),
    f"expiry:{_READING}:care-analytics.inbox": ({}, {"participants/health-service/outbox/expiry_s": 600}),
    f"guarantee:{_READING}:care-analytics.inbox": (
        {}, {f"event_types/{_READING}/delivery_guarantee": "best_effort"},
    ),
    "address:operations": ({}, {"participants/operations/may_address": "one"}),
    "subscribe:care-analytics": ({}, {"participants/care-analytics/may_subscribe": None}),
    "setting:alarm-centre.inbox:retention_s": ({}, {f"{_CENTRE}/retention_s": 3_600}),
    "setting:alarm-centre.inbox:give_up_after_s": ({}, {f"{_CENTRE}/give_up_after_s": 60}),
    "setting:alarm-centre.inbox:max_receives": (
        {f"{_CENTRE}/max_receives": 100}, {f"{_CENTRE}/max_receives": 5},
    ),
    "setting:alarm-centre.inbox:receipts": ({}, {f"{_CENTRE}/receipts": False}),
    "setting:alarm-centre.inbox:receipts_percent": ({}, {f"{_CENTRE}/receipts_percent": 1}),
    "setting:health-service.outbox:when_full": (
        {}, {"participants/health-service/outbox/when_full": "drop_oldest"},
    ),
    "setting:family-app.inbox:priority": ({}, {"participants/family-app/inbox/priority": "low"}),
    "setting:device.outbox:forward": ({}, {"participants/device/outbox/forward": "wanted"}),
    "setting:device.outbox:batching_delay_ms": ({}, {"participants/device/outbox/batching_delay_ms": 60_000}),
    "setting:care-analytics.inbox:ordering": (_SORTED, {_ORDER: "none"}),
    "setting:carers.inbox:webhook": (_POSTED, {_HOOK: None}),
    "setting:carers.inbox:webhook.mode": (_POSTED, {f"{_HOOK}/mode": "binary"}),
    "setting:carers.inbox:webhook.timeout_s": (_POSTED, {f"{_HOOK}/timeout_s": 1}),
    "setting:carers.inbox:webhook.requests_per_minute": (_POSTED, {f"{_HOOK}/requests_per_minute": 6}),
    "mapping:zigbee:lamp": (_ZIGBEE, {f"{_LAMP}/topic": "lamps/{room}/lamp"}),
    "mapping:zigbee:lamp:when": (_ZIGBEE, {f"{_LAMP}/when": {"/on": False}}),
    "mapping:zigbee:lamp:data": (_ZIGBEE, {f"{_LAMP}/data": None}),
    "mapping:zigbee:lamp:data.level": (_ZIGBEE, {f"{_LAMP}/data/level": {"pointer": "/voltage"}}),
    "mapping:zigbee:lamp:attributes.subject": (_ZIGBEE, {f"{_LAMP}/attributes/subject": "lamp"}),
}  # fmt: skip
"""Harmful changes that no event of a stage shows, by what is found: the contract before, and its change."""

HARMLESS: Final[dict[str, Mapping[str, Any]]] = {
    "another description": {"participants/alarm-centre/description": "Answers calls for help."},
    "one reader more for alarms": {
        "routes/alarms-to-operations": {"filter": {"prefix": {"type": _ALARM}}, "to": "operations.inbox"}
    },
    "one reader more for readings": {
        "routes/climate-to-operations": {"filter": {"exact": {"type": _CLIMATE}}, "to": "operations.inbox"}
    },
    "a route of another name": {
        "routes/alarms-to-alarm-centre": None,
        "routes/calls-for-help": {
            "filter": {"any": [{"prefix": {"type": _ALARM}}, {"exact": {"type": _CALL}}]},
            "to": "alarm-centre.inbox",
        },
    },
    "a filter in other words": {
        "routes/alarms-to-alarm-centre/filter": {
            "any": [{"exact": {"type": each}} for each in (_KEYWORD, _CLINICAL, _CALL)]
        }
    },
    "a wider filter": {
        "routes/alarms-to-alarm-centre/filter": {
            "any": [{"prefix": {"type": _ALARM}}, {"prefix": {"type": "org.eventplane.call."}}]
        }
    },
    "a route at home more": {
        "routes/motion-to-call-service": {"filter": {"exact": {"type": _MOTION}}, "to": "call-service.inbox"}
    },
    "a new type": {"event_types/org.eventplane.activity.window.v1": {"description": "A window was opened."}},
    "a new urgent type": {
        "event_types/org.eventplane.alarm.smoke.v1": {"description": "Smoke.", "priority": "urgent"}
    },
    "a new service in homes": {
        "participants/light-service": {
            "kind": "device_service", "description": "Lamps.", "sends": ["org.eventplane.light.*"],
        }
    },
    "a wider right to send": {"participants/climate-service/sends": [
        _CLIMATE, "org.eventplane.airquality.reading.v1", "org.eventplane.airquality.alert.v1",
    ]},
    "a wider right to subscribe": {"participants/care-analytics/may_subscribe": {
        "prefix": {"type": "org.eventplane."}
    }},
    "a longer retention": {"participants/care-analytics/inbox/retention_s": 1_209_600},
    "a longer expiry": {"participants/care-analytics/inbox/expiry_s": 1_209_600},
    "an expiry of a day for alarms": {"participants/alarm-centre/inbox/expiry_s": 86_400},
    "a shorter wait for company": {"participants/activity-service/outbox/batching_delay_ms": 5_000},
    "movements wait a little for company": {"participants/activity-service/outbox/batching_delay_ms": 20_000},
    "more events in a message": {"participants/family-app/inbox/events_per_message": 250},
    "a schema that all readings fit": {
        f"event_types/{_READING}/schemas": _schema("open", "quantity", "value")
    },
    "a longer patience with readers": {"participants/alarm-centre/inbox/give_up_after_s": 86_400},
}  # fmt: skip

UNNOTICED: Final[tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...]] = (
    ({}, {f"event_types/{_READING}/description": "One value."}),
    ({}, {"event_types/org.eventplane.activity.bath.v1": {"description": "A bath.", "priority": "low"}}),
    ({}, {f"event_types/{_READING}/schema_check": "none"}),
    ({}, {f"event_types/{_CLIMATE}/priority": "normal"}),
    ({}, {
        "routes/daily-life-to-family/filter": {
            "sql": "type LIKE 'org.eventplane.alarm.%' OR type LIKE 'org.eventplane.activity.%'"
        }
    }),
    ({}, {
        "routes/alarms-to-alarm-centre/filter": {
            "sql": f"type LIKE 'org.eventplane.alarm.%' OR type = '{_CALL}'"
        }
    }),
    ({}, {
        "routes/alarms-to-alarm-centre/filter": {"prefix": {"type": _ALARM}},
        "routes/calls-to-alarm-centre": {"filter": {"exact": {"type": _CALL}}, "to": "alarm-centre.inbox"},
    }),
    ({}, {"routes/alarms-to-alarm-centre/delivery_guarantee": "at_least_once"}),
    ({}, {"routes/heartbeats-to-presence-monitor/filter": {"suffix": {"type": ".heartbeat.v1"}}}),
    ({}, {"participants/climate-service/outbox/expiry_s": None}),
    ({}, {"participants/climate-service/outbox/when_full": "refuse"}),
    ({}, {"participants/device/outbox/batching_delay_ms": 2_000}),
    ({}, {"participants/carers/may_address": "everyone"}),
    ({}, {"participants/family-app/may_subscribe": {"prefix": {"type": "org."}}}),
    ({}, {"participants/family-app/inbox/retention_s": 864_000}),
    ({}, {"participants/alarm-centre/inbox/max_receives": 100}),
    ({}, _SORTED),
    (_POSTED, {f"{_HOOK}/requests_per_minute": 1_200, f"{_HOOK}/timeout_s": 30}),
    (_ZIGBEE, {f"{_LAMP}/data/colour": {"pointer": "/colour"}}),
    (_ZIGBEE, {"participants/zigbee/mappings/fan": {
        "topic": "zigbee/{room}/fan", "type": "org.eventplane.light.v1",
    }}),
)  # fmt: skip
"""Harmless changes that no event of a stage shows: the contract before, and the change of it."""
