-- Schema 1. Documented in docs/schema.md; it is public interface.
-- Instants are UTC (TIMESTAMP without zone, microseconds). Stored values are JSON text with tags (see engine/values.py).
CREATE SCHEMA canard_absurd;

CREATE TABLE canard_absurd.schema_version (
    version      INTEGER   NOT NULL,
    installed_at TIMESTAMP NOT NULL
);

CREATE SEQUENCE canard_absurd.task_seq;

-- One row per task. running <=> worker, token, deadline, claimed_at are there (G5).
-- seq is the order of spawning; other tables refer to it, since a scan by a growing number is pruned.
CREATE TABLE canard_absurd.tasks (
    id           VARCHAR   PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 256),
    seq          BIGINT    NOT NULL,
    name         VARCHAR   NOT NULL CHECK (length(name) BETWEEN 1 AND 256),
    queue        VARCHAR   NOT NULL CHECK (length(queue) BETWEEN 1 AND 128),
    state        VARCHAR   NOT NULL CHECK (state IN ('ready', 'running', 'suspended', 'completed', 'failed', 'cancelled')),
    priority     INTEGER   NOT NULL,
    attempt      INTEGER   NOT NULL,
    failures     INTEGER   NOT NULL,
    max_failures INTEGER   NOT NULL CHECK (max_failures BETWEEN 1 AND 1000000),
    available_at TIMESTAMP NOT NULL,
    created_at   TIMESTAMP NOT NULL,
    updated_at   TIMESTAMP NOT NULL,
    worker       VARCHAR,
    token        VARCHAR,
    claimed_at   TIMESTAMP,
    deadline     TIMESTAMP,
    error        VARCHAR,
    version      BIGINT    NOT NULL,
    input        VARCHAR   NOT NULL,
    result       VARCHAR,
    CHECK ((state = 'running') = (worker IS NOT NULL)),
    CHECK ((state = 'running') = (token IS NOT NULL)),
    CHECK ((state = 'running') = (claimed_at IS NOT NULL)),
    CHECK ((state = 'running') = (deadline IS NOT NULL))
);

CREATE TABLE canard_absurd.checkpoints (
    task_seq    BIGINT    NOT NULL,
    ordinal     INTEGER   NOT NULL,            -- order of saving within the task
    name        VARCHAR   NOT NULL,
    kind        VARCHAR   NOT NULL,            -- step, sleep, wait, map; waiting, mapping: a wait, a map that goes on; archive marks that steps were archived
    value       VARCHAR   NOT NULL,
    attempt     INTEGER   NOT NULL,            -- the task's attempt that saved it
    saved_at    TIMESTAMP NOT NULL,
    archived_at TIMESTAMP,                     -- set by retry and by invalidation; such a row is history
    place       INTEGER   NOT NULL,            -- which step of its handler, from 0; -1 for one within another
    code        VARCHAR                        -- the function that made it: file, qualified name, digest of its text
);

-- One row per child task: an item of a map. Its parent is the task that maps, its root the one that nobody mapped.
CREATE TABLE canard_absurd.children (
    task_seq    BIGINT    NOT NULL,
    parent_seq  BIGINT    NOT NULL,
    root_seq    BIGINT    NOT NULL,
    depth       INTEGER   NOT NULL,            -- 1, or 2 for an item of an item's map
    map         VARCHAR   NOT NULL,            -- the name of the map in its parent
    key         VARCHAR   NOT NULL,            -- the item's, unique in the map
    position    INTEGER   NOT NULL,            -- order of the items, from 0
    archived_at TIMESTAMP                      -- set when its map was archived: it runs again if the map asks for it
);

-- One row per claim, written when the attempt ends, in the transaction that ends it.
CREATE TABLE canard_absurd.attempts (
    task_seq   BIGINT    NOT NULL,
    attempt    INTEGER   NOT NULL,
    worker     VARCHAR   NOT NULL,
    started_at TIMESTAMP NOT NULL,
    ended_at   TIMESTAMP NOT NULL,
    outcome    VARCHAR   NOT NULL,             -- completed, failed, suspended, released, interrupted, expired, cancelled
    error      VARCHAR,
    cause      VARCHAR                         -- JSON object: the facts of a failure
);

-- One row per try of a command whose outcome the database knows, and, where the task sleeps meanwhile, per command that
-- is waiting or at work. A task that waits for a job (waits.kind) wakes when that row is not live any more.
CREATE TABLE canard_absurd.jobs (
    task_seq          BIGINT    NOT NULL,
    task_attempt      INTEGER   NOT NULL,
    step              VARCHAR   NOT NULL,
    ordinal           INTEGER   NOT NULL,      -- which command of the step, from 1
    attempt           INTEGER   NOT NULL,      -- N of the folder attempt-N
    executor          VARCHAR   NOT NULL,
    cluster           VARCHAR,
    job_id            VARCHAR,
    job_name          VARCHAR,
    array_index       INTEGER,                 -- its place in a job array, whose elements share the job name
    token             VARCHAR   NOT NULL,
    digest            VARCHAR   NOT NULL,
    folder            VARCHAR   NOT NULL,      -- relative to the launch folder where it lies below it
    command           VARCHAR   NOT NULL,
    state             VARCHAR   NOT NULL,      -- waiting, submitting, submitted, running, ended; then done, failed, interrupted, cancelled
    live              BOOLEAN   NOT NULL DEFAULT FALSE,    -- waiting, queued or running: its end is not known
    to_cancel         BOOLEAN   NOT NULL DEFAULT FALSE,    -- given up; to be taken from the scheduler, which may still have it
    cause             VARCHAR,
    reason            VARCHAR,                 -- what the scheduler says of it
    exit_code         INTEGER,
    signal            VARCHAR,
    cpus              DOUBLE,
    memory_bytes      BIGINT,
    time_seconds      DOUBLE,
    peak_memory_bytes BIGINT,
    cpu_seconds       DOUBLE,
    read_bytes        BIGINT,                  -- from and to storage: caches and pipes do not count
    written_bytes     BIGINT,
    host              VARCHAR,
    recorded_at       TIMESTAMP,               -- before anything was started; NULL where a command is recorded at its end
    submitted_at      TIMESTAMP,
    started_at        TIMESTAMP,
    ended_at          TIMESTAMP,
    archived_at       TIMESTAMP
);

-- What the commands of a task ask for at least, since somebody has retried it with more (retry --memory, --time).
CREATE TABLE canard_absurd.overrides (
    task_seq     BIGINT    NOT NULL,
    memory_bytes BIGINT,
    time_seconds DOUBLE,
    made_at      TIMESTAMP NOT NULL
);

-- What a suspended task waits for: kind task, event, map (its own, by name) or job. It wakes when every row is fulfilled, or at available_at.
CREATE TABLE canard_absurd.waits (
    task_seq BIGINT  NOT NULL,
    kind     VARCHAR NOT NULL,
    key      VARCHAR NOT NULL
);

CREATE TABLE canard_absurd.events (
    name       VARCHAR   PRIMARY KEY,          -- the first emission wins
    value      VARCHAR   NOT NULL,
    emitted_at TIMESTAMP NOT NULL
);

-- What another process asks of the living run: kind cancel, retry or backup, arguments and answer as JSON.
CREATE TABLE canard_absurd.requests (
    request_id  VARCHAR   NOT NULL,
    kind        VARCHAR   NOT NULL,
    arguments   VARCHAR   NOT NULL,
    asked_at    TIMESTAMP NOT NULL,
    answered_at TIMESTAMP,
    answer      VARCHAR
);

-- Published files: one row per target below the results folder.
CREATE TABLE canard_absurd.outputs (
    target_key   VARCHAR   PRIMARY KEY,        -- target in NFC, case-folded
    target       VARCHAR   NOT NULL,
    kind         VARCHAR   NOT NULL,           -- file, folder
    source       VARCHAR   NOT NULL,
    staging      VARCHAR   NOT NULL,
    accept_id    VARCHAR   NOT NULL,
    size         BIGINT    NOT NULL,
    checksum     VARCHAR   NOT NULL,
    task_seq     BIGINT    NOT NULL,
    attempt      INTEGER   NOT NULL,
    state        VARCHAR   NOT NULL,           -- accepted, published
    accepted_at  TIMESTAMP NOT NULL,
    published_at TIMESTAMP
);

CREATE TABLE canard_absurd.runs (
    run_id          VARCHAR   PRIMARY KEY,
    pipeline        VARCHAR   NOT NULL,
    pipeline_file   VARCHAR   NOT NULL,
    pipeline_digest VARCHAR   NOT NULL,
    sheet_file      VARCHAR   NOT NULL,
    sheet_text      VARCHAR   NOT NULL,
    params          VARCHAR   NOT NULL,        -- JSON object, as typed
    settings        VARCHAR   NOT NULL,        -- JSON object: cpus, memory, executor, folders
    versions        VARCHAR   NOT NULL,        -- JSON object: canard-pipe, python, duckdb, quack, schema
    host            VARCHAR   NOT NULL,
    pid             BIGINT    NOT NULL,
    started_at      TIMESTAMP NOT NULL,
    ended_at        TIMESTAMP,
    exit_status     INTEGER
);

-- What the latest sheet asks for: one row per sample, once and cohort function.
CREATE TABLE canard_absurd.planned (
    pipeline      VARCHAR NOT NULL,
    kind          VARCHAR NOT NULL,            -- once, sample, cohort
    name          VARCHAR NOT NULL,            -- the function
    key           VARCHAR NOT NULL,            -- the sample as typed; the function's name for once and cohort
    folder        VARCHAR NOT NULL,            -- its folder name below work/ and results/
    position      INTEGER NOT NULL,            -- order in the sheet
    line          INTEGER,                     -- first line in the sheet
    generation    INTEGER NOT NULL,
    task_id       VARCHAR,                     -- NULL until its prerequisites are there
    made_from     VARCHAR NOT NULL,            -- JSON: digests of its rows and parameters, size and time of its input files
    because       VARCHAR,                     -- what has changed, of a row that is marked changed
    after         VARCHAR[] NOT NULL,          -- names of the functions it needs
    allow_missing BOOLEAN NOT NULL,
    changed       BOOLEAN NOT NULL,
    retired       BOOLEAN NOT NULL,
    run_id        VARCHAR NOT NULL
);

CREATE VIEW canard_absurd.task_checkpoints AS
SELECT t.id AS task_id, c.name, c.kind, c.value::JSON::VARIANT AS value, c.ordinal, c.attempt, c.saved_at
FROM canard_absurd.checkpoints c JOIN canard_absurd.tasks t ON t.seq = c.task_seq
WHERE c.archived_at IS NULL;

-- One row per row of the plan, with the state that people see. blocked_by names the rows whose failure holds it back,
-- also through cohorts between. A task that waits for its items is where they are.
CREATE VIEW canard_absurd.samples AS
WITH RECURSIVE held AS (
    SELECT p.*, t.seq, t.state AS task_state, t.attempt, t.failures, t.max_failures, t.error, t.updated_at, t.available_at,
           CASE WHEN t.state = 'completed' THEN t.result ->> '$."$skipped"' END AS skipped_because
    FROM canard_absurd.planned p LEFT JOIN canard_absurd.tasks t ON t.id = p.task_id
), bad AS (
    SELECT pipeline, name, kind, string_agg(key, ', ' ORDER BY position) AS keys
    FROM held
    WHERE NOT retired AND (task_state IN ('failed', 'cancelled') OR (changed AND task_state = 'completed'))
    GROUP BY ALL
), hindered AS (
    SELECT h.pipeline, h.kind, h.key, h.name, b.keys
    FROM held h JOIN bad b ON b.pipeline = h.pipeline AND list_contains(h.after, b.name)
    WHERE NOT (h.allow_missing AND b.kind = 'sample')
    UNION
    SELECT h.pipeline, h.kind, h.key, h.name, x.keys
    FROM held h JOIN hindered x ON x.pipeline = h.pipeline AND x.kind = 'cohort' AND list_contains(h.after, x.name)
    WHERE h.kind = 'cohort'
), blocked AS (
    SELECT pipeline, kind, key, string_agg(DISTINCT keys, ', ' ORDER BY keys) AS blocked_by
    FROM hindered
    GROUP BY ALL
), at_work AS (
    SELECT coalesce(c.root_seq, a.task_seq) AS task_seq,
           CASE WHEN bool_or(a.state = 'running') THEN 'running' ELSE 'queued' END AS state
    FROM (SELECT w.task_seq, j.state
          FROM canard_absurd.waits w JOIN canard_absurd.jobs j ON w.kind = 'job' AND j.token = w.key
          WHERE j.live
          UNION ALL
          SELECT i.task_seq, 'running'
          FROM canard_absurd.children i JOIN canard_absurd.tasks t ON t.seq = i.task_seq AND t.state = 'running') AS a
    LEFT JOIN canard_absurd.children c ON c.task_seq = a.task_seq
    GROUP BY ALL
)
SELECT h.pipeline, h.kind, h.name AS function, h.key AS sample,
       CASE WHEN h.retired THEN 'retired'
            WHEN h.changed AND h.task_state = 'completed' THEN 'changed'
            WHEN h.skipped_because IS NOT NULL THEN 'skipped'
            WHEN h.task_state = 'completed' THEN 'done'
            WHEN h.task_state IN ('running', 'failed', 'cancelled') THEN h.task_state
            WHEN b.blocked_by IS NOT NULL THEN 'blocked'
            WHEN h.task_state = 'suspended' THEN coalesce(w.state, 'waiting')
            ELSE 'waiting' END AS state,
       h.attempt, h.failures, h.max_failures, h.error, h.skipped_because, b.blocked_by,
       CASE WHEN h.changed THEN h.because END AS changed_because, h.folder, h.generation, h.task_id,
       h.seq AS task_seq, h.position, h.line, h.changed, h.available_at, h.updated_at
FROM held h LEFT JOIN blocked b ON b.pipeline = h.pipeline AND b.kind = h.kind AND b.key = h.key
LEFT JOIN at_work w ON w.task_seq = h.seq;

-- One row per item of the maps of the plan's rows. path is map/item, for an item of an item's map map/item/map/item.
CREATE VIEW canard_absurd.items AS
SELECT p.pipeline, p.kind AS task_kind, p.key AS sample, c.map, c.key AS item,
       coalesce(o.map || '/' || o.key || '/', '') || c.map || '/' || c.key AS path,
       CASE WHEN t.state = 'completed' AND (t.result ->> '$."$skipped"') IS NOT NULL THEN 'skipped'
            WHEN t.state = 'completed' THEN 'done'
            WHEN t.state = 'suspended' THEN coalesce(w.state, 'waiting')
            WHEN t.state = 'ready' THEN 'waiting'
            ELSE t.state END AS state,
       t.attempt, t.failures, t.max_failures, t.error, t.id AS task_id, t.seq AS task_seq, c.parent_seq, c.root_seq,
       c.depth, c.position, t.available_at, t.updated_at
FROM canard_absurd.planned p
JOIN canard_absurd.tasks r ON r.id = p.task_id
JOIN canard_absurd.children c ON c.root_seq = r.seq AND c.archived_at IS NULL
JOIN canard_absurd.tasks t ON t.seq = c.task_seq
LEFT JOIN canard_absurd.children o ON o.task_seq = c.parent_seq
LEFT JOIN (SELECT w.task_seq, CASE WHEN bool_or(j.state = 'running') THEN 'running' ELSE 'queued' END AS state
           FROM canard_absurd.waits w JOIN canard_absurd.jobs j ON w.kind = 'job' AND j.token = w.key
           WHERE j.live
           GROUP BY w.task_seq) AS w ON w.task_seq = t.seq;

-- One row per saved step of the rows of the plan.
CREATE VIEW canard_absurd.steps AS
SELECT s.pipeline, s.kind AS task_kind, s.sample, c.name AS step, c.kind, c.ordinal, c.attempt, c.saved_at
FROM canard_absurd.samples s JOIN canard_absurd.checkpoints c ON c.task_seq = s.task_seq
WHERE c.archived_at IS NULL AND c.kind NOT IN ('waiting', 'mapping');
