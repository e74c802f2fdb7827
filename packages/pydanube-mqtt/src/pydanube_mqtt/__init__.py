"""The MQTT listener: sessions of devices over the topics of the broker."""
