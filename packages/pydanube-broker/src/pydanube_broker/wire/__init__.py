"""The bytes of gRPC, which only brokers speak."""
