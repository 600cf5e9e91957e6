"""The import job: preview, storing and undoing, each in batches of one transaction, acting as the user."""
