"""The ``samovar`` command: a thin layer over the graph, the views and the generator."""
