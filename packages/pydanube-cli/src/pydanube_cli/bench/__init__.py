"""A benchmark of a broker: throughput and latency through the public client."""
