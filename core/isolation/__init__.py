"""Row-level security beneath the application: its roles, its policies, and the checks that both are in force."""
