"""The REST endpoints of documents, records, the timeline and the map."""
