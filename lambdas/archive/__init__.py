"""The archive's writers: the tap of what IoT Core accepted, the ledger, and failures of the ingest rules."""
