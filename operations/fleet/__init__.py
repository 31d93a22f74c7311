"""The fleet's register: which devices were made, which are in service, which are gone."""
