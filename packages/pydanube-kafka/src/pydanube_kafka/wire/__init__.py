"""The protocol of Kafka: requests, record batches, compression."""
