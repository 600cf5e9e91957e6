"""What a person has, seen from above: the map of all texts, and the timeline of all months.

A worker draws (`drawing`) what pages and the API read (`atlas`, `timeline`).
"""
