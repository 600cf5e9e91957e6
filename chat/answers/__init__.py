"""Answers that do not depend on their readers: the task that writes an answer, its log, and its readers."""
