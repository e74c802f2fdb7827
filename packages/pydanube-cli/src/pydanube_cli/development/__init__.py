"""A whole system on this machine, for development: `danube up`."""
