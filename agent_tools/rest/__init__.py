"""The REST API of tools, under `/api/v1/tools/`, and of tokens, under `/api/v1/tokens/`."""
