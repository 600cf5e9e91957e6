"""The Prometheus metrics of a process, which `config.ops.metrics` shows. No label is a name, an address or a text."""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter("recollect_requests", "Requests answered.", ["kind", "status"])
REQUEST_SECONDS = Histogram(
    "recollect_request_seconds",
    "From a request's arrival until its answer begins.",
    ["kind"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
FIRST_TEXT_SECONDS = Histogram(
    "recollect_first_text_seconds",
    "From a chat message's arrival until the first text of its answer.",
    buckets=(0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60),
)
TOOL_CALLS = Counter("recollect_tool_calls", "Calls of a tool over REST and MCP.", ["tool", "mode"])
POOL = Gauge("recollect_database_connections", "Of this process's pool.", ["state"])
PENDING_VECTORS = Gauge("recollect_pending_vectors", "Passages without a vector, counted up to 10,001.")
QUEUE_SECONDS = Gauge("recollect_queue_seconds", "How long the passage that has waited longest has been due.")
