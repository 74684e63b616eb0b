-- The running `gatepost serve` of a deployment. Nothing depends on these rows; operators see them.

CREATE TABLE nodes (
  id bytea NOT NULL PRIMARY KEY,
  host text NOT NULL,
  kind text NOT NULL,
  version text NOT NULL,
  started_at bigint NOT NULL,
  beat_at bigint NOT NULL
);
