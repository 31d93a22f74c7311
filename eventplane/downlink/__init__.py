"""Cloud to device: desired state and commands, delivered until the device acknowledges that it stored them.

Pure decisions about items. Modules are imported by name, so that a device loads only what it needs.
"""
