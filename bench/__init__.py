"""Benchmarks of pydanube and its peers with the same workloads."""
