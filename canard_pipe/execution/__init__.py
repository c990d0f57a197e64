"""Commands: their identity and folders, the launcher that runs them, the budget they share, the executors.

Knows the engine, but nothing of samples or sheets.
"""
