"""The packets of MQTT 3.1.1 and 5: bytes, topics and filters.  Pure."""
