"""The command line: one module per group of commands, without logic of its own. Printing is in output.py only."""
