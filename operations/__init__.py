"""What an operator of the plane types: commands that look at a deployed environment, and change it."""
