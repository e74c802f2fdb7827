"""The gRPC servers: what clients and tools of the original Danube connect to."""
