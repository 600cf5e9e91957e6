"""Files that users attach to their messages: stored in pieces, read by a worker, sent to the model and found."""
