-- name: seal_macs_given
/*given: account bytea, number bigint */
SELECT s.account, s.number, s.mac FROM given JOIN seals s ON s.account = given.account AND s.number = given.number
-- name: anchors_given
/*given: account bytea */
SELECT a.account, a.number, a.mac, a.proof FROM given JOIN anchors a ON a.account = given.account
-- name: first_seal_since
SELECT number FROM seals WHERE account = :account AND at >= :since ORDER BY number LIMIT 1
-- name: accounts_given
/*given: account bytea */
SELECT a.id FROM given JOIN accounts a ON a.id = given.account
-- name: count_unsealed
SELECT count(*) FROM unsealed WHERE account = :account
-- name: unsealed_accounts
WITH RECURSIVE found (account) AS (
  SELECT (SELECT account FROM unsealed ORDER BY account LIMIT 1)
  UNION ALL
  SELECT (SELECT u.account FROM unsealed u WHERE u.account > found.account ORDER BY u.account LIMIT 1)
  FROM found WHERE found.account IS NOT NULL
)
SELECT account FROM found WHERE account IS NOT NULL
-- name: unsealed_accounts (citus)
SELECT DISTINCT account FROM unsealed WHERE true /*reachable: account */ ORDER BY account
-- name: unsealed
/*each: account bytea, most integer */
SELECT account, id FROM unsealed WHERE account = :account ORDER BY id LIMIT :most
-- name: unsealed_after
SELECT id FROM unsealed WHERE account = :account AND id > :after ORDER BY id LIMIT :limit
-- name: seal_accounts
WITH RECURSIVE found (account) AS (
  SELECT (SELECT account FROM seals ORDER BY account LIMIT 1)
  UNION ALL
  SELECT (SELECT s.account FROM seals s WHERE s.account > found.account ORDER BY s.account LIMIT 1)
  FROM found WHERE found.account IS NOT NULL
)
SELECT account FROM found WHERE account IS NOT NULL
-- name: seal_accounts (citus)
SELECT DISTINCT account FROM seals ORDER BY account
-- name: is_unsealed
SELECT 1 FROM unsealed WHERE account = :account AND id = :id
-- name: last_seal
SELECT number, mac FROM seals WHERE account = :account ORDER BY number DESC LIMIT 1
-- name: seals_after
SELECT number, at, leaves, mac FROM seals WHERE account = :account AND number > :after ORDER BY number LIMIT :limit
-- name: newer_seal
/*each: account bytea, number bigint */
SELECT 1 FROM seals WHERE account = :account AND number > :number LIMIT 1
-- name: insert_seals
/*given: account bytea, number bigint, at bigint, leaves bytea, mac bytea */
INSERT INTO seals (account, number, at, leaves, mac) SELECT account, number, at, leaves, mac FROM given WHERE true
  ON CONFLICT DO NOTHING RETURNING account
-- name: delete_seal
DELETE FROM seals WHERE account = :account AND number = :number RETURNING 1
-- name: anchor
SELECT number, mac, proof FROM anchors WHERE account = :account
-- name: set_anchor
INSERT INTO anchors (account, number, mac, proof) VALUES (:account, :number, :mac, :proof)
  ON CONFLICT (account) DO UPDATE SET number = excluded.number, mac = excluded.mac, proof = excluded.proof
