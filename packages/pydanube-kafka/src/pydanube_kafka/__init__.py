"""The listener for clients of Kafka."""
