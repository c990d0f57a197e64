-- How an attempt ended, if the database knows: for an end whose acknowledgement was lost.
SELECT outcome FROM canard_absurd.attempts WHERE task_seq = $task_seq AND attempt = $attempt;
