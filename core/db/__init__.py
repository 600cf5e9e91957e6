"""How a statement reaches PostgreSQL."""
