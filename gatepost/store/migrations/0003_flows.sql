-- Authorization flows: trusted issuers, pushed requests, interactions, consents, codes, families and revoked tokens.
-- What a login application said about a person, and what a request said, is encrypted.

INSERT INTO counters (name, value) VALUES ('ends', 0);  -- moved on whenever a token, family or consent is ended

CREATE TABLE issuers (
  account bytea NOT NULL REFERENCES accounts (id),
  name text NOT NULL,
  document text NOT NULL,
  PRIMARY KEY (account, name)
);

CREATE TABLE pushed (  -- RFC 9126; deleted when its authorization completes: the deletion decides
  account bytea NOT NULL,
  id bytea NOT NULL,
  client bytea NOT NULL,
  request bytea NOT NULL,
  expires_at bigint NOT NULL,  -- the last moment to open it
  PRIMARY KEY (account, id)
);
CREATE INDEX pushed_by_end ON pushed (expires_at);

CREATE TABLE interactions (
  account bytea NOT NULL,
  id bytea NOT NULL,
  client bytea NOT NULL,
  browser bytea NOT NULL,  -- hash of its cookie
  source text NOT NULL,
  pushed bytea,
  request bytea NOT NULL,
  expires_at bigint NOT NULL,
  done_at bigint,
  PRIMARY KEY (account, id)
);
CREATE INDEX interactions_by_source ON interactions (account, client, source, expires_at);
CREATE INDEX interactions_by_end ON interactions (expires_at);

CREATE TABLE consents (
  account bytea NOT NULL,
  id bytea NOT NULL,
  client bytea NOT NULL,
  person bytea NOT NULL,  -- keyed hash of the subject: to find those of one person
  said bytea NOT NULL,
  given_at bigint NOT NULL,
  expires_at bigint NOT NULL,  -- nothing can rest on it after that
  ended_at bigint,
  ended_reason text,
  PRIMARY KEY (account, id),
  CHECK ((ended_at IS NULL) = (ended_reason IS NULL))
);
CREATE INDEX consents_by_person ON consents (account, person, client);
CREATE INDEX consents_by_client ON consents (account, client, id);
CREATE INDEX consents_by_end ON consents (expires_at);

CREATE TABLE codes (
  account bytea NOT NULL,
  id bytea NOT NULL,  -- hash of the code
  client bytea NOT NULL,
  consent bytea NOT NULL,
  request text NOT NULL,  -- what its redemption must match
  expires_at bigint NOT NULL,
  spent_at bigint,
  PRIMARY KEY (account, id)
);
CREATE INDEX codes_by_end ON codes (expires_at);

-- A refresh token and its descendants: one row, since a token proves by itself that we made it. `number` is the fence.
CREATE TABLE families (
  account bytea NOT NULL,
  id bytea NOT NULL,
  client bytea NOT NULL,
  consent bytea NOT NULL,
  number integer NOT NULL,  -- of the token that is live
  leaf bytea NOT NULL,  -- its hash
  thumbprint text NOT NULL,  -- of the DPoP key at its last use
  rotated_at bigint NOT NULL,
  idle_ends_at bigint NOT NULL,
  ends_at bigint NOT NULL,
  ended_at bigint,
  ended_reason text,
  PRIMARY KEY (account, id),
  CHECK ((ended_at IS NULL) = (ended_reason IS NULL))
) /*postgres: WITH (fillfactor = 60) */;
CREATE INDEX families_by_consent ON families (account, consent);
CREATE INDEX families_by_end ON families (ends_at);

CREATE TABLE revoked (  -- access tokens that no longer work although they have not expired
  account bytea NOT NULL,
  id bytea NOT NULL,
  expires_at bigint NOT NULL,
  PRIMARY KEY (account, id)
);
CREATE INDEX revoked_by_end ON revoked (expires_at);
