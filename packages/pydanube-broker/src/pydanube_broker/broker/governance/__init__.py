"""Namespaces, quotas, permissions and keys: who may do what, and the audit."""
