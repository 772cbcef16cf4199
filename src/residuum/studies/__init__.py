"""Chains of commands with settled settings."""
