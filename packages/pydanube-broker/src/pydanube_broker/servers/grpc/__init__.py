"""The gRPC servers for clients and tools of the original Danube."""
