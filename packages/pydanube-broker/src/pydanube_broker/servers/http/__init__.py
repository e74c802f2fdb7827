"""The HTTP server: health, readiness, metrics and the JSON API."""
