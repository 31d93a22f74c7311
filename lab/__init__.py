"""The cloud and the homes on one machine: what `make demo` and the integration tests are made of.

Nothing that ships imports this package, and only `lab.emulator` knows which emulator replaces AWS.
"""
