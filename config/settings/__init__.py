"""Settings by place: `base` is shared, `local` is this machine, `test` is pytest, `production` is behind a proxy."""
