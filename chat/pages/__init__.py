"""The pages of the chat and the account, and the streaming endpoints that they call."""
