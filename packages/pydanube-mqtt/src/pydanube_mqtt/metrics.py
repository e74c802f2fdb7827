"""The metrics of the MQTT listener."""

from __future__ import annotations

from pydanube.model.metrics import Declarations, Metric

MQTT_METRICS: list[Metric] = []
"""Every metric, in the order of declaration."""

_declare = Declarations(MQTT_METRICS)
_counter, _gauge = _declare.counter, _declare.gauge

SESSIONS = _gauge(
    "danube_mqtt_sessions",
    "sessions",
    "Sessions of clients of MQTT, also of those that are not connected.",
)
SUBSCRIPTIONS = _gauge(
    "danube_mqtt_subscriptions", "subscriptions", "Subscriptions of these sessions."
)
SESSIONS_BEHIND = _gauge(
    "danube_mqtt_sessions_behind",
    "sessions",
    "Sessions of connected clients that read messages from the log of a topic, because "
    "the client was away or is slow.",
)
MESSAGES_IN = _counter(
    "danube_mqtt_messages_in_total",
    "messages",
    "Messages that clients of MQTT published.",
)
MESSAGES_OUT = _counter(
    "danube_mqtt_messages_out_total",
    "messages",
    "Messages that were sent to clients of MQTT.",
)
MESSAGES_DROPPED = _counter(
    "danube_mqtt_messages_dropped_total",
    "messages",
    "Messages that clients of MQTT did not get: of QoS 0 or of a topic that is not "
    "reliable, because too many waited, or larger than the client accepts.",
)
MESSAGES_UNMAPPED = _counter(
    "danube_mqtt_messages_unmapped_total",
    "messages",
    "Messages of the topics in mqtt.rules that have no topic of MQTT.",
)
MESSAGES_LOST = _counter(
    "danube_mqtt_messages_lost_total",
    "messages",
    "Messages that retention dropped before a session of MQTT had read them.",
)
MESSAGES_INVALID = _counter(
    "danube_mqtt_messages_invalid_total",
    "messages",
    "Messages of clients of MQTT that did not match the schema of their rule or topic, "
    "by what their rule says: refuse, drop or dead_letter.",
    "action",
)
WILLS = _counter("danube_mqtt_wills_total", "messages", "Wills that were published.")
RETAINED = _gauge("danube_mqtt_retained_messages", "messages", "Retained messages.")
RETAINED_BYTES = _gauge(
    "danube_mqtt_retained_bytes", "bytes", "The memory of the retained messages."
)
REFUSALS = _counter(
    "danube_mqtt_refusals_total",
    "requests",
    "Connections, messages and subscriptions of MQTT that were refused, and violations "
    "of the protocol, by the name of the reason code.",
    "reason",
)
