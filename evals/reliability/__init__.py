"""Whether it holds: a whole product of its own under faults (`manage.py chaos`) and under load (`manage.py soak`)."""
