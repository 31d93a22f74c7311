"""Building blocks of the stacks: one capability each.

A function makes its resources in a construct that it adds to its `scope`: logical ids follow from the path.
"""
