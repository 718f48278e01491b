"""Benchmarks, each against a peer in the same run: ``samovar bench NAME --json``."""
