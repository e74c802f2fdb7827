"""Producers of messages, of values, and of partitioned topics."""
