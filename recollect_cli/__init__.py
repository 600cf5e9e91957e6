"""`recollect`: a person's memory from a terminal, through the REST API of a server; it needs the standard library alone."""
