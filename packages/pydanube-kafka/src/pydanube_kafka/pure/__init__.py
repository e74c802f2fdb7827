"""Decisions about Kafka's topics, messages and groups, without input and output."""
