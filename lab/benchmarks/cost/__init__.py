"""The cost of the plane: billable units counted in a real run, times list prices."""
