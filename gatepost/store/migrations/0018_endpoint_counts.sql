-- The counts of `tallies`, for each endpoint. What an attempt adds to several counts is one row: `what` lists them.
-- A commit appends one row for each of its accounts to the log, and a chore adds the rows of the log to the others.

CREATE TABLE endpoint_tally_log (
  account bytea NOT NULL,
  id bytea NOT NULL,
  since bigint NOT NULL,  -- the minute, in seconds
  counts text NOT NULL,  -- what → endpoint → count
  PRIMARY KEY (account, id)
) /*sqlite: WITHOUT ROWID */;

CREATE TABLE endpoint_tallies (
  account bytea NOT NULL,
  endpoint bytea NOT NULL,
  since bigint NOT NULL,
  span integer NOT NULL CHECK (span IN (60, 3600)),
  what text NOT NULL,
  count bigint NOT NULL,
  PRIMARY KEY (account, endpoint, since, span, what)
) /*sqlite: WITHOUT ROWID */;
CREATE INDEX endpoint_tallies_by_span ON endpoint_tallies (span, since);
