"""The operations of a broker that clients request, whichever way they connect."""
