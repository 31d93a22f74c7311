"""Building blocks of the stacks: one capability each."""
