"""The gRPC doors: what clients and tools of the original Danube connect to."""
