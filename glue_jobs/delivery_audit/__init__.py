"""The delivery audit: from the archive alone, what should have been delivered and what was.

It evaluates the routes of the contract in force over every archived event, with Spark columns made from the
core's filters, and compares the result with the routers' ledger. It trusts neither router nor cloud.

The way of the data: `archive` (read) -> `tap`, `ledger`, `handovers` (what each row says, bad ones marked by
`quarantine`) -> `witness` (one shuffle: all that is said of one event, side by side) -> `expectations` and
`verdicts` in `deliveries` (one row for each event and route; `refusals` for what is no event). From these
`counting` and `latency` take the figures, `evidence` and `ordering` the findings. `devices` brings together
what each device sent; `device` judges it in plain Python by `completeness`, `device_reports`, `numbers` and
`clocks`; `device_evidence` says what was found. `report`, `tables`, `verdict` and `storage` write it.
`watermark` tells lost from pending. `audit` and `main` wire them.
"""
