"""Subscribers: posts events to the HTTPS endpoints that participants subscribed by the API."""
