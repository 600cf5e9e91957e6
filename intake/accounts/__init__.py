"""Getting into an account and keeping it: proofs, sessions, second factors. django-allauth has the mechanisms."""
