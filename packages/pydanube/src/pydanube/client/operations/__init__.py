"""The operations of administrators: one module for each noun."""
