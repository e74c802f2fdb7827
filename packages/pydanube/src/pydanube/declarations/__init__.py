"""The files that declare pipelines and connectors: YAML, parameters, secrets."""
