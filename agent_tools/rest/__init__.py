"""The DRF edge: tools under `/api/v1/tools/`, a person's tokens under `/api/v1/tokens/`."""
