"""The log of each topic: journal, then memory, then Parquet segments."""
