"""Everything breaks on purpose: a seeded schedule of faults, homes under load, and counters that decide."""
