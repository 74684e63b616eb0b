-- name: marks
SELECT keep_days, id FROM prunings WHERE account = :account
-- name: entries_matched
SELECT id, type, keep_days, matched FROM entries
  WHERE account = :account AND id > :after ORDER BY id LIMIT :limit
-- name: entry_keeps_given
/*given: account bytea, id bytea */
SELECT e.id, e.keep_days FROM given JOIN entries e ON e.account = given.account AND e.id = given.id
  /*in days: e.id */
-- name: entries_given
/*given: account bytea, id bytea */
SELECT e.account, e.id, e.type, e.at, e.actor, e.subject, e.data, e.data_hash, e.matched, e.keep_days, e.request, e.source
  FROM given JOIN entries e ON e.account = given.account AND e.id = given.id /*in days: e.id */
-- name: events_given
/*given: account bytea, id bytea */
SELECT e.account, e.id, e.type, e.at, e.data
  FROM given JOIN entries e ON e.account = given.account AND e.id = given.id /*in days: e.id */
-- name: entry_sizes_given
/*given: account bytea, id bytea */
SELECT e.account, e.id, e.at, octet_length(e.data)
  FROM given JOIN entries e ON e.account = given.account AND e.id = given.id /*in days: e.id */
-- name: entry
SELECT account, id, type, at, actor, subject, data, data_hash, matched, keep_days, request, source
  FROM entries WHERE account = :account AND id = :id
-- name: entry_keeps
SELECT id, keep_days FROM /*sqlite: entries */ /*postgres: entries_pruned_by_row */
  WHERE account = :account AND id > :after AND id < :before ORDER BY id LIMIT :limit
-- name: pruned_up_to
SELECT id FROM prunings WHERE account = :account AND keep_days = :keep_days
-- name: put_pruned_up_to
INSERT INTO prunings (account, keep_days, id) VALUES (:account, :keep_days, :id)
  ON CONFLICT (account, keep_days) DO UPDATE SET id = excluded.id WHERE prunings.id = :previous
-- name: entries_newest
SELECT account, id, type, at, actor, subject, data, data_hash, matched, keep_days, request, source
  FROM entries WHERE account = :account AND id < :before AND id >= :since ORDER BY id DESC LIMIT :limit
-- name: entries_oldest
SELECT account, id, type, at, actor, subject, data, data_hash, matched, keep_days, request, source
  FROM entries WHERE account = :account AND id > :after AND id < :before ORDER BY id LIMIT :limit
-- name: count_entries
SELECT count(*) FROM entries WHERE account = :account
-- name: entries_waiting
SELECT e.id, EXISTS (SELECT 1 FROM unsealed u WHERE u.account = :account AND u.id = e.id)
  FROM entries e WHERE e.account = :account AND e.id > :after ORDER BY e.id LIMIT :limit
-- name: entry_accounts
WITH RECURSIVE found (account) AS (
  SELECT (SELECT account FROM entries ORDER BY account LIMIT 1)
  UNION ALL
  SELECT (SELECT e.account FROM entries e WHERE e.account > found.account ORDER BY e.account LIMIT 1)
  FROM found WHERE found.account IS NOT NULL
)
SELECT account FROM found WHERE account IS NOT NULL
-- name: entry_accounts (citus)
SELECT DISTINCT account FROM entries ORDER BY account
-- name: invalid_rows
SELECT
  (SELECT e.id FROM entries e WHERE e.account = :account AND (
    /*sqlite: typeof(e.id) <> 'blob' OR */ length(e.id) <> 16
    OR substr(e.id, 7, 1) NOT BETWEEN :version_first AND :version_last
    OR substr(e.id, 9, 1) NOT BETWEEN :variant_first AND :variant_last) ORDER BY e.id LIMIT 1),
  (SELECT u.id FROM unsealed u WHERE u.account = :account
    AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.account = u.account AND e.id = u.id) ORDER BY u.id LIMIT 1)
-- name: unseal
/*given: account bytea, id bytea */
DELETE FROM unsealed /*postgres: USING given */ WHERE /*sqlite: (account, id) IN (SELECT account, id FROM given) */
  /*postgres: unsealed.account = given.account AND unsealed.id = given.id */
  RETURNING unsealed.account, unsealed.id
-- name: delete_entries
/*given: account bytea, id bytea */
DELETE FROM entries /*postgres: USING given */ WHERE /*sqlite: (account, id) IN (SELECT account, id FROM given) */
  /*postgres: entries.account = given.account AND entries.id = given.id */ /*in days: entries.id */
  RETURNING entries.id
-- name: lock_entries
/*given: account bytea, id bytea */
SELECT e.id FROM given JOIN entries e ON e.account = given.account AND e.id = given.id /*in days: e.id */
  /*postgres: FOR KEY SHARE OF e */
-- name: partitioned_given
/*given: account bytea, id bytea */
/*sqlite: SELECT id FROM given WHERE false */
/*postgres: SELECT e.id FROM given JOIN entries e ON e.account = given.account AND e.id = given.id */
  /*in days: e.id */ /*postgres: WHERE NOT EXISTS (SELECT 1 FROM entries_pruned_by_row r WHERE r.account = e.account AND r.id = e.id) */
-- name: unfinished_given
/*given: account bytea, event bytea */
SELECT event FROM (SELECT event, (SELECT 1 FROM deliveries d /*sqlite: INDEXED BY deliveries_by_event */
    WHERE d.account = given.account AND d.event = given.event AND d.status = 'pending' LIMIT 1) AS unfinished
  FROM given) looked_at WHERE unfinished = 1
