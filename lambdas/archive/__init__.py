"""The archive's writers: the tap of what IoT Core accepted, without any router's help, and the ledger."""
