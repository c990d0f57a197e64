SELECT id, name, queue, state, priority, attempt, failures, max_failures, epoch_us(available_at), epoch_us(created_at),
       epoch_us(updated_at), worker, epoch_us(deadline), error, seq, input, result
FROM canard_absurd.tasks
WHERE id = $id;
