"""The data types of pydanube: names, batches, ranges, policies, errors.  No I/O."""
