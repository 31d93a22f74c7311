"""Learns from connections which certificate a device uses, and takes the replaced ones out of service."""
