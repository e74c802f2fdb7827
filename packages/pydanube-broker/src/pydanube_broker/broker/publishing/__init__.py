"""One topic, and the batches that its producers publish."""
