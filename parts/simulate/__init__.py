"""The simulation of a contract: homes with the real forwarder, in virtual time, under weather."""
