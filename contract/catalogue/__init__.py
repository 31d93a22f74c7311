"""The event catalogue: a contract as a page for people, `eventplane contract catalogue`."""

from contract.catalogue.page import catalogue

__all__ = ["catalogue"]
