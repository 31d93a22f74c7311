"""The delivery audit: from the archive alone, what should have been delivered and what was.

It evaluates the routes of the contract in force over every archived event, by the routers' own code, and
compares the result with the routers' ledger. It trusts neither router nor cloud.

`audit` decides: read, screen, judge, write. An engine reads. `large` is Spark: `common.archive` reads lines,
`expect` adds the routes that each event should take, `rows` gives rows their key, `screen` counts what is
ordinary. `small` reads some 200,000 events at most without Spark, by rows that `plain_rows` makes. `judging`
hands events, group by group, to the pure `judge`; `device` judges one device, `devices` all; `coverage` says
what attests events and what the archive lacks. `report`, `chain` and `publication` make and file the result.
"""
