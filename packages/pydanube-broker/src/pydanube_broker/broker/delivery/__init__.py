"""Subscriptions of one topic: what they deliver, and where they are."""
