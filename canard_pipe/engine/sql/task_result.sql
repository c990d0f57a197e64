SELECT state, result FROM canard_absurd.tasks WHERE id = $id;
