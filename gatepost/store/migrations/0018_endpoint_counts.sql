-- The counts of `tallies`, for each endpoint. What an attempt adds to several counts is one row: `what` lists them.
-- A commit writes rows of one minute for many endpoints, so these are next to each other, and few pages change. They
-- become rows by the hour, which are read for one endpoint. For the same reason, the counts of created deliveries, which
-- other processes write, are not between those of attempts and ends (`settled`).

CREATE TABLE endpoint_minutes (
  since bigint NOT NULL,  -- in seconds
  settled integer NOT NULL CHECK (settled IN (0, 1)),
  account bytea NOT NULL,
  endpoint bytea NOT NULL,
  slot integer NOT NULL,  -- of the writer, so that none waits for another
  what text NOT NULL,
  count bigint NOT NULL,
  PRIMARY KEY (since, settled, account, endpoint, slot, what)
) /*sqlite: WITHOUT ROWID */ /*postgres: WITH (fillfactor = 70) */;

CREATE TABLE endpoint_hours (
  account bytea NOT NULL,
  endpoint bytea NOT NULL,
  since bigint NOT NULL,
  what text NOT NULL,
  count bigint NOT NULL,
  PRIMARY KEY (account, endpoint, since, what)
) /*sqlite: WITHOUT ROWID */;
CREATE INDEX endpoint_hours_by_time ON endpoint_hours (since);
