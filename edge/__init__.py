"""The device's side: a forwarder that stores first, routes in the home and carries the rest to the cloud.

Needs Python with SQLite and OpenSSL only. `python -m edge --settings FILE` runs it.
"""
