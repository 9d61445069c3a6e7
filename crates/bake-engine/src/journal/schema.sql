-- The journal of all runs, as version 2 makes it. What older ones lack, `mod.rs` adds.
--
-- Columns that hold JSON say so. Times are RFC 3339 in UTC, which sorts as text.

CREATE TABLE runs (
    id          TEXT NOT NULL PRIMARY KEY,
    started     TEXT NOT NULL,
    finished    TEXT,
    title       TEXT NOT NULL,
    request_key TEXT NOT NULL,
    config      TEXT NOT NULL, -- JSON: the environment, resolved
    plugins     TEXT NOT NULL, -- JSON: names and versions
    plan        TEXT NOT NULL, -- JSON: the plan as printed
    plan_digest TEXT NOT NULL,
    verdict     TEXT,          -- null while the run is open
    format      INTEGER NOT NULL DEFAULT 1, -- the version that began the run
    epoch       INTEGER NOT NULL DEFAULT 1  -- how often the run was opened; only the last who did may write
) STRICT;

CREATE INDEX runs_by_request_key ON runs (request_key);

CREATE TABLE steps (
    run        TEXT NOT NULL REFERENCES runs (id),
    path       TEXT NOT NULL,
    generation INTEGER NOT NULL, -- how often its scope was begun
    state      TEXT,             -- null until it has settled
    attempts   INTEGER NOT NULL,
    conditions TEXT,             -- JSON: what its conditions were found to be
    output     TEXT,             -- JSON
    error      TEXT,             -- JSON: class, chain, hint, details
    retry      TEXT,             -- JSON: class, delay, and when the next try is due
    updated    TEXT NOT NULL,
    skipped    TEXT,             -- JSON: why it was not run
    PRIMARY KEY (run, path)
) STRICT, WITHOUT ROWID;

-- One row for each operation: a call that changes the world, however often it is sent.
CREATE TABLE resources (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT, -- a legal order to make them in; backwards, to undo them in
    run        TEXT NOT NULL REFERENCES runs (id),
    operation  TEXT NOT NULL,
    step       TEXT NOT NULL,
    generation INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    keep       TEXT NOT NULL,
    state      TEXT NOT NULL,
    intended   TEXT NOT NULL,
    updated    TEXT NOT NULL,
    request    TEXT NOT NULL, -- JSON, frozen
    made       TEXT,          -- JSON: ids, enough to undo it
    result     TEXT,          -- JSON: what was read back
    UNIQUE (run, operation)
) STRICT;

CREATE TABLE events (
    run     TEXT NOT NULL REFERENCES runs (id),
    seq     INTEGER NOT NULL,
    at      TEXT NOT NULL,
    step    TEXT,
    attempt INTEGER,
    body    TEXT NOT NULL, -- JSON
    PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;
