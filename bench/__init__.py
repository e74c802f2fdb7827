"""Side-by-side benchmarks: the same work for pydanube and for its peers."""
