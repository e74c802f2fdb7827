"""gRPC over HTTP/2, and the messages of the original Danube's API."""
