"""The pages of memory: search, notes, timeline and map; all work without scripts."""
