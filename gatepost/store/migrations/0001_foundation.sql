-- Accounts, clients, scopes, keys and the ledger. One text for both stores: `bytea` and `bigint` mean to SQLite what
-- they mean to PostgreSQL. A comment that starts with sqlite: or postgres: is part of the text for that store only.

CREATE TABLE accounts (
  id bytea NOT NULL PRIMARY KEY,
  name text NOT NULL UNIQUE,
  document text NOT NULL
);

CREATE TABLE clients (
  account bytea NOT NULL REFERENCES accounts (id),
  id bytea NOT NULL,
  document text NOT NULL,
  PRIMARY KEY (account, id)
);
CREATE UNIQUE INDEX clients_by_id ON clients (id);  -- a token request names the client, not the account

CREATE TABLE secret_uses (
  account bytea NOT NULL,
  id bytea NOT NULL,
  last_used_at bigint NOT NULL,
  PRIMARY KEY (account, id)
);

CREATE TABLE scopes (
  account bytea NOT NULL REFERENCES accounts (id),
  name text NOT NULL,
  document text NOT NULL,
  PRIMARY KEY (account, name)
);

CREATE TABLE resources (  -- service-wide on purpose: the first account to define a resource owns it
  resource text NOT NULL PRIMARY KEY,
  account bytea NOT NULL REFERENCES accounts (id)
);

CREATE TABLE server_keys (
  name text NOT NULL PRIMARY KEY,
  wrapped bytea NOT NULL
);

CREATE TABLE signing_keys (
  id bytea NOT NULL PRIMARY KEY,
  document text NOT NULL,
  private bytea
);

-- Bumped last in every unit that changes something cached; held to its commit, so versions commit in order.
CREATE TABLE counters (
  name text NOT NULL PRIMARY KEY,
  value bigint NOT NULL
);
INSERT INTO counters (name, value) VALUES ('changes', 0);

CREATE TABLE changes (
  version bigint NOT NULL PRIMARY KEY,
  at bigint NOT NULL,
  thing text NOT NULL
);

CREATE TABLE entries (
  account bytea NOT NULL,
  id bytea NOT NULL,
  type text NOT NULL,
  at bigint NOT NULL,
  actor text NOT NULL,
  subject text NOT NULL,
  data text,
  data_hash bytea,  -- only where the data was erased
  matched integer NOT NULL,
  keep_days integer NOT NULL,
  request text NOT NULL,
  source text NOT NULL,
  PRIMARY KEY (account, id)
) /*sqlite: WITHOUT ROWID */;

CREATE TABLE unsealed (
  account bytea NOT NULL,
  id bytea NOT NULL,
  PRIMARY KEY (account, id)
) /*sqlite: WITHOUT ROWID */;

CREATE TABLE seals (
  account bytea NOT NULL,
  number bigint NOT NULL,
  at bigint NOT NULL,
  leaves bytea NOT NULL,  -- for each entry its id, days kept and hash
  mac bytea NOT NULL,
  PRIMARY KEY (account, number)
);

CREATE TABLE anchors (  -- where the chain starts after pruning
  account bytea NOT NULL PRIMARY KEY,
  number bigint NOT NULL,
  mac bytea NOT NULL,
  proof bytea NOT NULL  -- that the service put it there
);

CREATE TABLE prunings (  -- how far each retention class was pruned
  account bytea NOT NULL,
  keep_days integer NOT NULL,
  id bytea NOT NULL,
  PRIMARY KEY (account, keep_days)
);

CREATE TABLE assertions (  -- ids of client assertions already used
  client bytea NOT NULL,
  id bytea NOT NULL,
  expires_at bigint NOT NULL,
  PRIMARY KEY (client, id)
);
CREATE INDEX assertions_by_end ON assertions (expires_at);

CREATE TABLE failures (  -- failed client authentications of one client and address in the current minute
  pair bytea NOT NULL PRIMARY KEY,
  since bigint NOT NULL,
  count integer NOT NULL,
  account bytea,
  client text NOT NULL,
  source text NOT NULL
);

CREATE TABLE answers (  -- what was answered to an Idempotency-Key
  account bytea NOT NULL,
  caller text NOT NULL,
  operation text NOT NULL,
  id bytea NOT NULL,
  body_hash bytea NOT NULL,
  status integer NOT NULL,
  answer text NOT NULL,
  expires_at bigint NOT NULL,
  PRIMARY KEY (account, caller, operation, id)
);
CREATE INDEX answers_by_end ON answers (expires_at);
