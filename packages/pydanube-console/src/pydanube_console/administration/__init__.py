"""
An MCP server: AI assistants inspect and administer brokers.

It uses the public client and the HTTP port, with the credentials of its callers.
"""
