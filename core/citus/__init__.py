"""A Citus cluster: routes each person's statements to one node, and distributes the schema."""
