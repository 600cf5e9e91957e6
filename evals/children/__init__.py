"""Programs that benchmarks run in processes of their own; each reads JSON and writes JSON."""
