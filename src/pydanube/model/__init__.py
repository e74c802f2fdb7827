"""The words of pydanube: names, batches, ranges, policies, errors.  No I/O."""
