"""The sender of events to HTTPS endpoints: webhooks of the contract, and subscribed endpoints."""
