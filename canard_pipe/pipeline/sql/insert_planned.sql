INSERT INTO canard_absurd.planned
SELECT r.pipeline, r.kind, r.name, r.key, r.folder, r.position, r.line, r.generation, r.task_id, r.made_from, r.because, r.after,
       r.allow_missing, r.changed, r.retired, r.run_id
FROM rows(pipeline VARCHAR, kind VARCHAR, name VARCHAR, key VARCHAR, folder VARCHAR, position INTEGER, line INTEGER, generation INTEGER, task_id VARCHAR, made_from VARCHAR, because VARCHAR, after VARCHAR[], allow_missing BOOLEAN, changed BOOLEAN, retired BOOLEAN, run_id VARCHAR) AS r;
