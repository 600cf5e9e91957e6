"""The DRF edge of imports."""
