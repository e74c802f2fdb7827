"""All topics of a broker: how they are loaded, recorded and deleted."""
