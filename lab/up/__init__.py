"""A plane that stays on this machine: emulated cloud, one home, control room, until `make down`."""
