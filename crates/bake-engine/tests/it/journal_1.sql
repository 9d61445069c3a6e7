-- A journal as version 1 made it, with a run that died: its volume is there, and its image was going to be sent.
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
    verdict     TEXT           -- null while the run is open
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

INSERT INTO runs VALUES (
    '20260301-101500-k3f9', '2026-03-01T10:15:00Z', NULL, 'hello', 'key', '{}', '{}',
    '{"steps":{"volume":{"kind":"mutation"},"image":{"kind":"mutation"}},"warnings":[]}', 'digest', NULL
);
INSERT INTO steps VALUES
    ('20260301-101500-k3f9', 'volume', 1, 'done', 1, NULL, '{"id":"volume-0","name":"volume"}', NULL, NULL,
     '2026-03-01T10:15:02Z'),
    ('20260301-101500-k3f9', 'image', 1, NULL, 1, NULL, NULL, NULL,
     '{"class":"transient","delay_ms":700,"not_before":"2026-03-01T10:15:04Z"}', '2026-03-01T10:15:03Z');
INSERT INTO resources VALUES
    (1, '20260301-101500-k3f9', 'en3xq69wjz2r81mr', 'volume', 1, 'test.volume', 'scaffold', 'done',
     '2026-03-01T10:15:01Z', '2026-03-01T10:15:02Z', '{"name":"volume","uses":[]}', '{"id":"volume-0"}',
     '{"id":"volume-0","name":"volume"}'),
    (2, '20260301-101500-k3f9', '78mpdr4fmn0nmchc', 'image', 1, 'test.image', 'artifact', 'open',
     '2026-03-01T10:15:02Z', '2026-03-01T10:15:02Z', '{"name":"image","uses":["volume-0"]}', NULL, NULL);
INSERT INTO events VALUES
    ('20260301-101500-k3f9', 1, '2026-03-01T10:15:00Z', NULL, NULL,
     '{"event":"run_started","title":"hello","steps":["volume","image"]}'),
    ('20260301-101500-k3f9', 2, '2026-03-01T10:15:01Z', 'volume', 1, '{"event":"step_started"}'),
    ('20260301-101500-k3f9', 3, '2026-03-01T10:15:02Z', 'volume', 1,
     '{"event":"resource_made","kind":"test.volume","id":{"id":"volume-0"}}'),
    ('20260301-101500-k3f9', 4, '2026-03-01T10:15:02Z', 'volume', 1,
     '{"event":"step_finished","state":"done","elapsed_ms":900}');
PRAGMA user_version = 1;
