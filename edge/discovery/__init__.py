"""Where the home's broker is: read from its own profile, announced to the home and found in it."""
