"""The servers of the broker: each translates, calls the broker, translates back."""
