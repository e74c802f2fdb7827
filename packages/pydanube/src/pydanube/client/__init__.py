"""The client: producers, consumers and readers over the native protocol."""
