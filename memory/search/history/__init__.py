"""`search_history`: what was said and what was written down, from every source, in one ranking."""
