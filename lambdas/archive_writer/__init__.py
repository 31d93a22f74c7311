"""The archive tap: everything that IoT Core accepted from devices, written down without any router's help."""
