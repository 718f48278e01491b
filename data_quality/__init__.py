"""Looking into the data: DuckDB views, compression baselines, plots, the report page."""
