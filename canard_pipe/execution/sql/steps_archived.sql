-- How often steps of this task were archived. A command that ended before counts no more, also where a crash kept its
-- row from `jobs`.
SELECT count(*) FROM canard_absurd.checkpoints WHERE task_seq = $task_seq AND kind = 'archive';
