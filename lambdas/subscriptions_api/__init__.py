"""Subscriptions API: participants add, change and end their own routes over HTTP."""
