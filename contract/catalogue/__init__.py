"""The event catalogue: a contract as a page for people, `python -m contract catalogue`."""

from contract.catalogue.page import catalogue

__all__ = ["catalogue"]
