"""Pure readers: files in; conversations, documents and skipped items out. They do not use Django or the database."""
