"""The delivery audit: from the archive alone, what should have been delivered and what was.

It evaluates the routes of the contract in force over every archived event, with Spark columns made from the
core's filters, and compares the result with the routers' ledger. It trusts neither router nor cloud.

The way of the data: `archive` (read) -> `quarantine` (bad rows out) -> `tap`, `ledger` (typed rows), then a
judgement for each hop: `completeness` with `device_reports` and `numbers` (device to cloud), `deliveries`
(router: one row for each event and route, with a verdict), `handovers` (inbox to consumer). `ordering`,
`clocks`, `epochs`, `latency` and `dead_letters` ask what else the rows tell. What was found becomes
`evidence`, rows of `findings`; `figures` and `devices` count; `replay` lists what to send again; `report`,
`verdict` and `storage` say it. `watermark` tells lost from pending. `main` wires them.
"""
