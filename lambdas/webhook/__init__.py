"""Webhooks: posts the events of an inbox to the HTTPS endpoint that is its consumer."""
