"""The endpoint of other programs: `/v1` in OpenAI's and Anthropic's protocols, with this memory and one history."""
