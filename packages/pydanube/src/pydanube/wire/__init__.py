"""The bytes of pydanube: batches, frames, the protocol, journal entries.  Pure."""
