"""The REST API of conversations and the account."""
