"""Archives of any size, right ones but for what is planted in them; the truth beside them says what that is.

`python -m lab.archive_generator build/archive --events 1000000`. Rows are made by the functions' records;
what is frequent is filled into lines made that way once (`lines`). The truth names a fault once, at the hop
where it happened; a proof of an audit compares its findings with it (`lab/benchmarks/audit`).
"""
