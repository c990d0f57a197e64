SELECT pipeline_digest FROM canard_absurd.runs WHERE pipeline = $pipeline ORDER BY started_at DESC LIMIT 1;
