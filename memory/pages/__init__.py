"""Memory in the browser: all that was ever said is searched, and notes are kept; without any script, too."""
