"""The bytes of pydanube: batches, frames, the native protocol, journal entries.  Pure."""
