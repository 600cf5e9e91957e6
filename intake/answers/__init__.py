"""Answers that outlive their readers: the task that writes one, the log of it, and everybody who reads along."""
