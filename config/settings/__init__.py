"""Settings by place: `base` is shared; `local` runs on this machine, `test` under pytest, `production` behind a proxy."""
