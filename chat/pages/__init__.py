"""The pages: of chats, of the account, of what is kept, of imports and agents, and of staff."""
