"""Filters: what is measured of a document, and the selection made from the measurements."""
