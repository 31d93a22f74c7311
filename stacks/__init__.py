"""The infrastructure: typed environments, stacks by lifecycle, constructs of one capability each."""
