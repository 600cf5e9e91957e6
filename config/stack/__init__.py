"""One machine, one command: the servers that come in wheels, and the supervisor that runs everything beside them."""
