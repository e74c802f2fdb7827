"""Object stores: named, immutable objects in a directory, in memory, or in a cloud."""
