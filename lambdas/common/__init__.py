"""Adapters between the functions and AWS: one small file for each thing adapted."""
