"""What the plane costs: billable units counted in a real run, times list prices."""
