"""The REST API of chats, of the account and of what is kept, and the streams that pages read."""
