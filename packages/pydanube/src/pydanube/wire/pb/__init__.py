"""Generated from the .proto files beside it by ``make proto``; not edited by hand."""

from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
"""Ours alone; ``tools/proto.py`` says why."""
