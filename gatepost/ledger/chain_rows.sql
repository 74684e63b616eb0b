-- name: chains_given
/*given: account bytea */
SELECT c.account, c.number, c.mac, c.grown, c.size, c.edge, c.linked, c.proof
  FROM given JOIN chains c ON c.account = given.account
-- name: lock_chains
/*given: account bytea, proof bytea */
SELECT c.account FROM given JOIN chains c ON c.account = given.account AND c.proof = given.proof
  /*postgres: ORDER BY c.account FOR UPDATE OF c */
-- name: insert_chains
/*given: account bytea, number bigint, mac bytea, grown bigint, size bigint, edge bytea, linked bigint, proof bytea */
INSERT INTO chains (account, number, mac, grown, size, edge, linked, proof)
  SELECT account, number, mac, grown, size, edge, linked, proof FROM given WHERE true
  ON CONFLICT DO NOTHING RETURNING account
-- name: move_chains
/*given: account bytea, number bigint, mac bytea, grown bigint, size bigint, edge bytea, linked bigint, proof bytea, before bytea */
UPDATE chains SET number = given.number, mac = given.mac, grown = given.grown, size = given.size, edge = given.edge,
    linked = given.linked, proof = given.proof
  FROM given WHERE chains.account = given.account AND chains.proof = given.before
  RETURNING chains.account
-- name: chains_behind
SELECT account FROM chains WHERE grown < number /*reachable: account */ ORDER BY account LIMIT :limit
-- name: accounts_without_chain
SELECT a.id FROM accounts a WHERE NOT EXISTS (SELECT 1 FROM chains c WHERE c.account = a.id) ORDER BY a.id
-- name: accounts_without_chain (citus)
SELECT id FROM accounts WHERE id NOT IN (SELECT account FROM chains) ORDER BY id
-- name: chains_without_account
SELECT c.account FROM chains c WHERE NOT EXISTS (SELECT 1 FROM accounts a WHERE a.id = c.account) ORDER BY c.account
-- name: chains_without_account (citus)
SELECT account FROM chains WHERE account NOT IN (SELECT id FROM accounts) ORDER BY account
-- name: any_chain
SELECT 1 FROM chains LIMIT 1
