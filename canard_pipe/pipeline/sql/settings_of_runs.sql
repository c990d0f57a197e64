SELECT DISTINCT settings FROM canard_absurd.runs ORDER BY settings;
