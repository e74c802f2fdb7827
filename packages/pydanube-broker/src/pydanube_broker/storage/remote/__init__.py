"""Segments in object stores: uploaded, evicted, verified and copied."""
