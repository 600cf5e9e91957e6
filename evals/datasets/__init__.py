"""Data sets: how they are written down, how they are read, and how their people come to live in a database."""

from evals.datasets.loading import Loaded, embed_all, load
from evals.datasets.reading import Dataset, DatasetError, QueryRow, TurnRow, read_dataset

__all__ = ["Dataset", "DatasetError", "Loaded", "QueryRow", "TurnRow", "embed_all", "load", "read_dataset"]
