"""Cloud to device: desired state and commands, until the device has said that it stored them.

Pure: what becomes of an item, and what is to be done about it. Modules are imported by name, so that a device
loads only what it needs.
"""
