"""Files of messages: stored with their bytes, claimed by a message, sent to the model, and removed with their turn."""
