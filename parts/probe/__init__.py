"""The canary: sends an alarm as a device does and waits for it in an inbox; looks at all queues."""
