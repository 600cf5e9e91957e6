"""The models that run beside search: embedders and rerankers, built in or behind an endpoint."""
