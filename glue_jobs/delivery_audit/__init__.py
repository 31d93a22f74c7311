"""The delivery audit: from the archive alone, what should have been delivered and what was.

It evaluates the routes of the contract in force over every archived event, with Spark columns made from the
core's filters, and compares the result with the routers' ledger. It trusts neither router nor cloud.

`audit` wires it: `common.archive` reads, `expect` adds the routes that each event should take, `rows` gives
rows their key. `screen` counts what is ordinary; `judging` hands everything else, group by group, to the pure
`judge`. `devices` gathers what each device sent, `device` judges it; `coverage` says what attests events and
what the archive lacks. `report`, `chain` and `publication` make and file the result. `small` audits one of
some 200,000 events at most without Spark, by rows that `plain_rows` makes.
"""
