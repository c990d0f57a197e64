SELECT id FROM canard_absurd.tasks;
