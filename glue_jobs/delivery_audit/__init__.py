"""The delivery audit: from the archive alone, what should have been delivered and what was.

It evaluates the routes of the contract in force over every archived event, with Spark columns made from the
core's filters, and compares the result with the routers' ledger. It trusts neither router nor cloud.

The way of the data: `archive` (read) -> `quarantine` (bad rows out) -> `tap`, `ledger` (typed rows) ->
`deliveries` (one row for each event and route, with a verdict) -> `figures`, `latency`, `devices`,
`dead_letters` (tables) -> `report` and `storage` (written). `main` wires them.
"""
