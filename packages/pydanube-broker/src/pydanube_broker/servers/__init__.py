"""The broker's servers, which translate between protocols and the broker's API."""
