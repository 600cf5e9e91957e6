"""Operating a deployment: backups, restoring, the bill of materials, and the endpoints for supervisors."""
