-- Bounds on what callers without credentials can store: counts of their refusals, and the address and cookie by which
-- open interactions and pushed requests are limited.

CREATE TABLE refusals (  -- of one public client and address in the current minute
  pair bytea NOT NULL PRIMARY KEY,
  since bigint NOT NULL,
  count integer NOT NULL,
  account bytea NOT NULL,
  client text NOT NULL,
  source text NOT NULL,
  type text NOT NULL,  -- of the entries
  error text NOT NULL  -- of the latest refusal
);

ALTER TABLE interactions ADD COLUMN first_visit integer NOT NULL DEFAULT 0;  -- 1: the browser sent no cookie
CREATE INDEX interactions_by_browser ON interactions (account, browser, expires_at, id) WHERE done_at IS NULL;
CREATE INDEX interactions_by_visit ON interactions (account, client, source, first_visit, expires_at, id)
  WHERE done_at IS NULL;

ALTER TABLE pushed ADD COLUMN source text NOT NULL DEFAULT '';
CREATE INDEX pushed_by_source ON pushed (account, client, source, expires_at, id);
