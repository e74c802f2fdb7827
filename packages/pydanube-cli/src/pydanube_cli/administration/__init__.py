"""Parts that several commands of administrators share."""
