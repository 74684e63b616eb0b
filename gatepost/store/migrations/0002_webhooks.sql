-- Webhooks: endpoints, subscriptions, deliveries with their attempts, and what the worker needs to know.

CREATE TABLE endpoints (
  account bytea NOT NULL REFERENCES accounts (id),
  id bytea NOT NULL,
  status text NOT NULL CHECK (status IN ('active', 'disabled', 'removed')),
  document text NOT NULL,
  PRIMARY KEY (account, id)
);

CREATE TABLE subscriptions (
  account bytea NOT NULL REFERENCES accounts (id),
  id bytea NOT NULL,
  endpoint bytea NOT NULL,
  status text NOT NULL CHECK (status IN ('active', 'disabled', 'removed')),
  document text NOT NULL,
  PRIMARY KEY (account, id),
  FOREIGN KEY (account, endpoint) REFERENCES endpoints (account, id)
);
CREATE INDEX subscriptions_by_endpoint ON subscriptions (account, endpoint, id);

-- How an endpoint fares while it is not well: no row, no trouble.
CREATE TABLE health (
  account bytea NOT NULL,
  endpoint bytea NOT NULL,
  failures integer NOT NULL,  -- attempts in a row
  failing_since bigint,
  not_before bigint NOT NULL,  -- its own Retry-After
  PRIMARY KEY (account, endpoint)
);

-- The record of a delivery, written at its birth, after a failed attempt, and at its end.
-- While it is not ended it is `pending` here, and its row in `queue` says what is going on.
CREATE TABLE deliveries (
  account bytea NOT NULL,
  id bytea NOT NULL,
  endpoint bytea NOT NULL,
  subscription bytea NOT NULL,
  event bytea NOT NULL,
  event_type text NOT NULL,
  origin text NOT NULL CHECK (origin IN ('event', 'replay', 'retry')),
  status text NOT NULL,
  ended_at bigint,
  ended_reason text,
  last_code integer,
  last_failure text,
  keep_days integer NOT NULL,
  bad_status text,  -- the status and the code again, where they are not good: what is indexed stays as it is
  bad_code integer,  -- when a delivery succeeds at once, so PostgreSQL writes no index for it
  PRIMARY KEY (account, id),
  CHECK (
    (status = 'pending' AND ended_at IS NULL AND ended_reason IS NULL)
    OR (status = 'succeeded' AND ended_at IS NOT NULL AND ended_reason IS NOT NULL AND ended_reason = 'delivered')
    OR (status = 'failed' AND ended_at IS NOT NULL AND ended_reason IS NOT NULL
      AND ended_reason IN ('attempts_exhausted', 'endpoint_gone', 'held_too_long'))
    OR (status = 'cancelled' AND ended_at IS NOT NULL AND ended_reason IS NOT NULL
      AND ended_reason IN ('endpoint_removed', 'cancelled_by_operator'))
  )
) /*sqlite: WITHOUT ROWID */ /*postgres: WITH (fillfactor = 80) */;
CREATE INDEX deliveries_by_endpoint ON deliveries (account, endpoint, id);
CREATE INDEX deliveries_by_event ON deliveries (account, event, id);
CREATE INDEX deliveries_by_status ON deliveries (account, bad_status, id) WHERE bad_status IS NOT NULL;
CREATE INDEX deliveries_by_code ON deliveries (account, bad_code, id) WHERE bad_code IS NOT NULL;
CREATE INDEX deliveries_by_failure ON deliveries (account, last_failure, id) WHERE last_failure IS NOT NULL;

-- One narrow row for each delivery that is not ended. An attempt is open while `worker` is there: it was written
-- before its socket was opened, and until `lease` nobody else may take the delivery. `number` is also the fence: only
-- who holds the current one may settle. Claiming changes no indexed column, so PostgreSQL writes no index for it.
CREATE TABLE queue (
  account bytea NOT NULL,
  id bytea NOT NULL,
  endpoint bytea NOT NULL,
  event bytea NOT NULL,
  lane integer NOT NULL CHECK (lane IN (0, 1)),  -- first attempts, and the others
  due bigint NOT NULL,
  planned_at bigint NOT NULL,
  because text NOT NULL,  -- why it is planned for then
  number integer NOT NULL,  -- of the last attempt
  used integer NOT NULL,  -- of the planned ones
  interrupted integer NOT NULL,  -- in a row
  worker bytea,
  opened text,  -- the open attempt: when, to where, signed with what
  lease bigint,
  PRIMARY KEY (account, id),
  CHECK ((worker IS NULL) = (opened IS NULL) AND (worker IS NULL) = (lease IS NULL))
) /*sqlite: WITHOUT ROWID */ /*postgres: WITH (fillfactor = 50) */;
CREATE INDEX queue_by_endpoint ON queue (account, endpoint, lane, due, id);
CREATE INDEX queue_by_due ON queue (account, due, id);

CREATE TABLE attempts (
  account bytea NOT NULL,
  delivery bytea NOT NULL,
  number integer NOT NULL,
  outcome text NOT NULL CHECK (outcome IN ('succeeded', 'failed', 'interrupted', 'not_sent')),
  document text NOT NULL,
  PRIMARY KEY (account, delivery, number)
) /*sqlite: WITHOUT ROWID */;

CREATE TABLE workers (
  id bytea NOT NULL PRIMARY KEY,
  place text NOT NULL,  -- of its supervisor: who takes its place there knows that it is gone
  beat_at bigint NOT NULL
);

-- Counts by the minute, and later by the hour. A writer has a slot of its own, so that none waits for another.
CREATE TABLE tallies (
  account bytea NOT NULL,
  since bigint NOT NULL,  -- in seconds
  span integer NOT NULL,  -- 60 or 3600
  slot integer NOT NULL,
  what text NOT NULL,
  count bigint NOT NULL,
  PRIMARY KEY (account, since, span, slot, what)
) /*sqlite: WITHOUT ROWID */;
CREATE INDEX tallies_by_span ON tallies (span, since);

CREATE TABLE replays (
  account bytea NOT NULL,
  id bytea NOT NULL,
  subscription bytea NOT NULL,
  state text NOT NULL CHECK (state IN ('running', 'ended')),
  position bytea NOT NULL,
  examined bigint NOT NULL,
  made bigint NOT NULL,
  document text NOT NULL,
  PRIMARY KEY (account, id)
);
CREATE INDEX replays_by_subscription ON replays (account, subscription, id);
CREATE INDEX replays_running ON replays (account, id) WHERE state = 'running';

-- The ids that publishers gave their events.
CREATE TABLE published (
  account bytea NOT NULL,
  name bytea NOT NULL,
  event bytea NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (account, name)
);
CREATE INDEX published_by_event ON published (account, event);

CREATE TABLE delivery_prunings (
  account bytea NOT NULL,
  keep_days integer NOT NULL,
  id bytea NOT NULL,
  PRIMARY KEY (account, keep_days)
);

/*postgres: CREATE TABLE gatepost_outbox (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account text NOT NULL, type text NOT NULL, data json NOT NULL, id text, inserted_at timestamptz NOT NULL DEFAULT clock_timestamp(), refused text); */
/*postgres: CREATE INDEX gatepost_outbox_waiting ON gatepost_outbox (seq) WHERE refused IS NULL; */
