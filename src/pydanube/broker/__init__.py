"""The floors put together: topics, producers and subscriptions of one broker."""
