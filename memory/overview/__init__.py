"""Overviews of a user's texts: the map of all texts, and the timeline of all months.

A worker draws (`drawing`) the data that pages and the API read (`atlas`, `reading`).
"""
