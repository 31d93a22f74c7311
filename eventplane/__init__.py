"""The core of the Event Plane: envelope, batch, filters, contract, router, outcomes.

Pure Python, standard library only. No I/O, no clock, no AWS, no MQTT: the device, the cloud functions
and the audit import the same code, so that they cannot disagree about what a route means.
"""

__version__ = "0.3.0"
