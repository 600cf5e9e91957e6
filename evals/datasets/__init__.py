"""Data sets: how they are read (`reading`), and how their people come to live in a database (`loading`)."""
