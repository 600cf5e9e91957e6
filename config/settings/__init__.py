"""The settings: `base` is shared, `local` is for this machine, `test` for pytest, `production` for a proxy with TLS."""
