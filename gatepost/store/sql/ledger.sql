-- name: entry
SELECT account, id, type, at, actor, subject, data, data_hash, matched, keep_days, request, source
  FROM entries WHERE account = :account AND id = :id
-- name: entry_keeps
SELECT id, keep_days FROM entries
  WHERE account = :account AND id > :after AND id < :before ORDER BY id LIMIT :limit
-- name: pruned_up_to
SELECT id FROM prunings WHERE account = :account AND keep_days = :keep_days
-- name: put_pruned_up_to
INSERT INTO prunings (account, keep_days, id) VALUES (:account, :keep_days, :id)
  ON CONFLICT (account, keep_days) DO UPDATE SET id = excluded.id WHERE prunings.id < excluded.id
-- name: entries_newest
SELECT account, id, type, at, actor, subject, data, data_hash, matched, keep_days, request, source
  FROM entries WHERE account = :account AND id < :before AND id >= :since ORDER BY id DESC LIMIT :limit
-- name: entries_oldest
SELECT account, id, type, at, actor, subject, data, data_hash, matched, keep_days, request, source
  FROM entries WHERE account = :account AND id > :after AND id < :before ORDER BY id LIMIT :limit
-- name: count_entries
SELECT count(*) FROM entries WHERE account = :account
-- name: count_unsealed
SELECT count(*) FROM unsealed WHERE account = :account
-- name: ledger_counts
SELECT
  (SELECT count(*) FROM entries e WHERE e.account = :account
    AND NOT EXISTS (SELECT 1 FROM unsealed u WHERE u.account = e.account AND u.id = e.id)),
  (SELECT coalesce(sum(length(leaves) - CASE substr(leaves, length(leaves) - 49, 8) WHEN :link THEN 50 ELSE 0 END), 0)
    FROM seals WHERE account = :account AND number > :after),
  (SELECT u.id FROM unsealed u WHERE u.account = :account
    AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.account = u.account AND e.id = u.id) ORDER BY u.id LIMIT 1)
-- name: unsealed_accounts
WITH RECURSIVE found (account) AS (
  SELECT (SELECT account FROM unsealed ORDER BY account LIMIT 1)
  UNION ALL
  SELECT (SELECT u.account FROM unsealed u WHERE u.account > found.account ORDER BY u.account LIMIT 1)
  FROM found WHERE found.account IS NOT NULL
)
SELECT account FROM found WHERE account IS NOT NULL
-- name: oldest_unsealed
SELECT id FROM unsealed WHERE account = :account ORDER BY id LIMIT 1
-- name: unsealed
SELECT e.account, e.id, type, at, actor, subject, data, data_hash, matched, keep_days, request, source
  FROM unsealed u JOIN entries e ON e.account = u.account AND e.id = u.id
  WHERE u.account = :account ORDER BY u.id LIMIT :limit
-- name: is_unsealed
SELECT 1 FROM unsealed WHERE account = :account AND id = :id
-- name: last_seal
SELECT number, mac FROM seals WHERE account = :account ORDER BY number DESC LIMIT 1
-- name: seals_after
SELECT number, at, leaves, mac FROM seals WHERE account = :account AND number > :after ORDER BY number LIMIT :limit
-- name: insert_seal
INSERT INTO seals (account, number, at, leaves, mac) VALUES (:account, :number, :at, :leaves, :mac)
  ON CONFLICT DO NOTHING RETURNING number
-- name: delete_seal
DELETE FROM seals WHERE account = :account AND number = :number RETURNING 1
-- name: anchor
SELECT number, mac, proof FROM anchors WHERE account = :account
-- name: set_anchor
INSERT INTO anchors (account, number, mac, proof) VALUES (:account, :number, :mac, :proof)
  ON CONFLICT (account) DO UPDATE SET number = excluded.number, mac = excluded.mac, proof = excluded.proof
-- name: unseal
/*given: account bytea, id bytea */
DELETE FROM unsealed /*postgres: USING given */ WHERE /*sqlite: (account, id) IN (SELECT account, id FROM given) */
  /*postgres: unsealed.account = given.account AND unsealed.id = given.id */ RETURNING 1
-- name: erase_data
UPDATE entries SET data = NULL, data_hash = :data_hash WHERE account = :account AND id = :id AND data IS NOT NULL
-- name: delete_entries
/*given: account bytea, id bytea */
DELETE FROM entries /*postgres: USING given */ WHERE /*sqlite: (account, id) IN (SELECT account, id FROM given) */
  /*postgres: entries.account = given.account AND entries.id = given.id */
