"""The doors of the broker: each translates, calls the broker, translates back."""
