"""Durable tasks on DuckDB: tasks, claims with a lease, named steps that are saved and replayed.

Knows nothing of samples, commands or Slurm. The rules it keeps are listed, with ids, in docs/parity.md.
"""
