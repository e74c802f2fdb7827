"""The sources: modules for the systems whose data is published."""
