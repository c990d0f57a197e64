SELECT kind, state, count(*) FROM canard_absurd.samples WHERE pipeline = $pipeline GROUP BY kind, state;
