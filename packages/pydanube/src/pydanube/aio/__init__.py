"""Event loop, task and transport helpers that brokers and clients share."""
