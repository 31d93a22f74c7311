"""The HTTP APIs: the Subscriptions API, and the Discovery API over the contract in force."""
