"""Pure readers: files in, conversations, documents and what was left out; nothing here knows Django or the database."""
