"""The page on which a person brings a history along; it works through the API of imports."""
