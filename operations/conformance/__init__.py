"""The conformance kit of the receipt protocol (docs/reference/receipts.md)."""
