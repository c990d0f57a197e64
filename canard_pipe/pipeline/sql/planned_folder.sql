SELECT folder FROM canard_absurd.planned WHERE task_id = $id;
