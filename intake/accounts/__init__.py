"""Accounts on top of django-allauth: log-in, proofs, sessions and second factors."""
