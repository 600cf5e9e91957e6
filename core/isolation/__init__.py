"""Row-level security: the database roles, the policies, and the checks that both are active."""
