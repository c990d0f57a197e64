-- What the rows of the plan are called, in the order of the sheet.
SELECT key FROM canard_absurd.planned WHERE pipeline = $pipeline ORDER BY position;
