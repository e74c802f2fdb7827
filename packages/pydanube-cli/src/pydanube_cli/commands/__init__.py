"""The commands of `danube`: one module for each, and modules for their parts."""
