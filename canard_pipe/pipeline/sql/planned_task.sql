SELECT task_id FROM canard_absurd.planned WHERE pipeline = $pipeline AND kind = $kind AND key = $key;
