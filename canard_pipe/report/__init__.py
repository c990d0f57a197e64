"""What people see of a run: status, why, logs, the live view, the summary. Nothing here prints or changes anything."""
