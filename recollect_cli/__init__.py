"""`recollect`: a person's memory from a terminal, through the REST API of a server; the standard library is enough."""
