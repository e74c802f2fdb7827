"""The commands that `danube` has with this package."""
