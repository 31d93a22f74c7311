"""Sends the forwarder's metrics to an OpenTelemetry collector, by a program of its own."""
