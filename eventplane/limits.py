"""Every bound that an event meets on its way, in one place, with unit and source."""

MAX_EVENT_BYTES = 96 * 1024
"""Largest event in JSON format, bytes. CloudEvents 1.0.2 asks intermediaries to forward 64 KiB; an
event must also fit one AWS IoT Core publish uncompressed (128 KiB) with room for what the plane stamps."""

MAX_SENT_EVENT_BYTES = 96 * 1024 - 1024
"""Largest event that a participant can count on to send, bytes. With its numbers, its positions and its
service, which a device puts in front, and its device and hops, which the cloud adds, it must fit
MAX_EVENT_BYTES."""

MAX_ORDERED_INBOXES = 9
"""Most inboxes whose events senders number. Ours: a position takes up to 55 bytes, and all of them must fit
beside an event of MAX_SENT_EVENT_BYTES."""

MAX_UPLINK_EVENT_BYTES = MAX_EVENT_BYTES - 192
"""Largest event that a device sends up, bytes: the cloud puts the device's name in front, at most 160 bytes
(AWS IoT: a thing's name has up to 128 characters), and counts its hops."""

MAX_DOWNLINK_EVENT_BYTES = 94 * 1024
"""Largest event towards a device, bytes. With what the plane puts in front, in the cloud and on the device,
it must fit MAX_EVENT_BYTES."""

MAX_DEPTH = 64
"""Deepest nesting of an event's JSON, levels. Ours: deep enough for real payloads, far from the
recursion limit of any reader."""

MAX_NUMBER_CHARACTERS = 1_000
"""Longest number in an event's JSON, characters. Jackson, by which Spark and most of Java read JSON, takes no
longer one; an event that routers deliver must be readable for the audit too."""

MAX_ATTRIBUTE_NAME = 64
"""Longest attribute name, characters. CloudEvents 1.0.2 recommends 20; real extensions exceed it."""

MAX_REMEMBERED_VALUES = 1_024
"""Most values of one attribute that were found valid and are remembered, and most combinations of values for
each form; then they are forgotten. Ours: with MAX_REMEMBERED_CHARACTERS, and for three attributes, that is
1 MiB at most; a combination has up to four times as many characters, which makes 5 MiB for four forms."""

MAX_REMEMBERED_CHARACTERS = 128
"""Longest value of an attribute that is remembered, characters. Ours: usual sources and schemas fit."""

MAX_REMEMBERED_SHAPES = 256
"""Most lists of attributes' names that are remembered; then they are forgotten. Ours: with
MAX_REMEMBERED_NAMES and MAX_ATTRIBUTE_NAME 1.5 MiB at most; a type of event has a shape or two."""

MAX_REMEMBERED_NAMES = 32
"""Most names in a list that is remembered. Ours: events with more attributes are rare."""

MAX_SENDER_CHARACTERS = 128
"""Longest name of a device or a participant, characters (AWS IoT: a thing's name; participants' are shorter).
A dead letter has both beside its original, and must fit an event."""

MAX_PAYLOAD_BYTES = 128 * 1024
"""Largest MQTT payload that AWS IoT Core accepts, bytes (AWS IoT Core quotas, message size)."""

MAX_BATCH_BYTES = 4 * 1024 * 1024
"""Largest batch after decompression, bytes. Ours: bounds what one hostile payload can make a reader hold."""

MAX_BATCH_EVENTS = 1_000
"""Most events in one batch. Ours: a function takes up ten such messages, and finishes one after the other."""

MAX_PACKED_MESSAGE_BYTES = 64 * 1024
"""Largest queue message that carries several events, bytes with its attributes. Amazon SQS bills
each 64 KiB of a call as one request."""

MAX_ORIGINAL_BYTES = 64 * 1024
"""Most bytes of a refused original that a dead letter carries; in base64 they stay within MAX_EVENT_BYTES."""

MAX_REPLY_BYTES = 94 * 1024 - 256
"""Largest reply, bytes: one that has to go down to a device must fit MAX_DOWNLINK_EVENT_BYTES once its hops
are counted. A larger answer is left out."""

MAX_DETAIL_CHARACTERS = 500
"""Most characters of a dead letter's detail. Ours: it may quote the original, which is in the letter already,
and at JSON's 6 bytes a character both must fit MAX_EVENT_BYTES."""

MAX_ANNOUNCED_FILTERS = 100
"""Most filters by which a reader announces what it handles. Ours: whoever handles more kinds handles
everything."""

MAX_ANNOUNCED_BYTES = 16 * 1024
"""Longest announcement, bytes of canonical JSON. Ours: routers and devices hold those of all participants."""

MAX_SQS_BYTES = 1024 * 1024
"""Largest SQS message, and all of a batch together, bytes with their attributes (Amazon SQS quotas)."""

MAX_SQS_ATTRIBUTES = 10
"""Most message attributes of an SQS message (Amazon SQS quotas)."""

MAX_HOPS = 8
"""Most times that participants may send on one event, passes of the cloud's router. Ours: no sensible chain
of services is so long, and a loop of two has come round four times, which is soon enough to stop it."""

MAX_FILTER_STEPS = 10_000_000
"""Most work of one filter for an event of MAX_EVENT_BYTES, steps of `eventplane.filters`. Ours: 10 ms of
a core; a search for four words in any case fits."""

MAX_PARTICIPANT_STEPS = 20_000_000
"""Most work of all subscriptions of one participant for such an event, steps. Ours: twenty participants at
their limit keep a router busy for 0.4 s."""

MAX_ANNOUNCED_STEPS = 1_000_000
"""Most work of the announced interest of one participant for such an event, steps. Ours: it is evaluated once
for each route to the inbox."""

MAX_CHEAP_STEPS = 6_000
"""Most work of an added filter that routers evaluate for every message, steps. Ours: 6 us, some ten
comparisons; one that takes more is left out for a message whose filters exceed their time."""

MAX_REMEMBERED_ROUTINGS = 8_192
"""Most combinations of attribute values for which a router remembers the routes, entries; then it empties its
memory. Ours: entries of the usual 500 bytes fill MAX_REMEMBERED_BYTES."""

MAX_REMEMBERED_BYTES = 4 * 1024 * 1024
"""Most memory for the routes that a router remembers, bytes. Ours: a home needs a fiftieth of it, and the
smallest device has room for all of it."""

MAX_FILTER_TEXT_BYTES = 4 * MAX_EVENT_BYTES
"""Longest text that a CESQL expression may make of an event, bytes of UTF-8. Ours: CONCAT of four attributes,
each of which may fill the event, and UPPER of any one."""

MAX_INTEGER_TEXT = 100
"""Longest text that CESQL casts to an Integer, characters, with leading zeros. Ours: ten digits suffice."""

MAX_FILTER_NESTING = 12
"""Most CESQL functions and comparisons within each other, levels. Ours: people stop at three."""

MAX_RECEIVES = 1_000
"""Most receives of a message before its dead-letter queue gets it (Amazon SQS quotas, `maxReceiveCount`)."""

MAX_BATCHING_DELAY_MS = 300_000
"""Longest time that an event waits on a device for others in its frame, milliseconds. Ours."""

DAY_S = 86_400
"""Seconds of a day; after so many an urgent event that cannot be delivered is given up. Ours."""

URGENT_S = 30
"""Longest wait of an urgent event between two attempts, seconds: so soon after an outage it goes on. Ours."""

UNSETTLED = 5
"""Receives that end without a settlement before an event is given up: its reader died of it each time."""
