"""The DRF edge of intake: a person's conversations and account, as programs see them."""
