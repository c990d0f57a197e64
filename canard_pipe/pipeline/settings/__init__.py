"""Settings: what can be set (keys), where they are written (files), and which of them counts (resolve)."""
