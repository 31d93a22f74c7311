"""A page on the loopback interface that shows a running plane, and breaks it on request."""
