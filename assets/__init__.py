"""The Dagster asset graph of the active profile. No algorithm lives here.

code_location.py  what ``dagster dev`` loads: the active profile's definitions
definitions.py    all of it put together: assets, checks, jobs, the refresh sensor
nodes.py          what a node of the graph is: key, inputs, stage, builder, checks
raw.py documents.py chat.py tokens.py checkpoints.py evaluation.py quality.py
                  the nodes, one module a group
factory.py        a node as a Dagster asset
figures.py        metadata: tables, plots
planner.py        which assets are stale, and refreshing exactly those
refresh.py        the same for the UI, as a sensor
instance.py       Dagster's own home, inside the data root
"""
