"""The replay: the router once more, fed from the tap's files, for what is owed or newly asked for."""
