"""The device's side: a forwarder that stores first, routes in the home and carries the rest to the cloud.

Needs Python, SQLite and paho-mqtt only. `python -m edge --settings FILE` runs it.
"""
