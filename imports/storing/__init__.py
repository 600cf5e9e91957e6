"""An import as a job: preview, storing and undoing, each in batches of one transaction as the person."""
