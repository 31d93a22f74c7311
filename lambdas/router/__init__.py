"""The cloud's router: from one source queue to the inboxes that the contract's routes name."""
