"""The producers, subscriptions and shards that a broker serves."""
