-- name: entries_matched
SELECT id, type, keep_days, matched FROM entries
  WHERE account = :account AND id > :after ORDER BY id LIMIT :limit
-- name: count_deliveries_given
/*given: account bytea, event bytea */
SELECT event, (SELECT count(*) FROM deliveries d /*sqlite: INDEXED BY deliveries_by_event */
    WHERE d.account = given.account AND d.event = given.event AND d.origin = 'event') FROM given
-- name: delivered_given
/*given: account bytea, event bytea */
SELECT d.event, d.subscription FROM given JOIN deliveries d /*sqlite: INDEXED BY deliveries_by_event */
    ON d.account = given.account AND d.event = given.event
  WHERE d.origin = 'event'
-- name: unfinished_given
/*given: account bytea, event bytea */
SELECT event FROM (SELECT event, (SELECT 1 FROM deliveries d /*sqlite: INDEXED BY deliveries_by_event */
    WHERE d.account = given.account AND d.event = given.event AND d.status = 'pending' LIMIT 1) AS unfinished
  FROM given) looked_at WHERE unfinished = 1
-- name: entry_keeps_given
/*given: account bytea, id bytea */
SELECT e.id, e.keep_days FROM given JOIN entries e ON e.account = given.account AND e.id = given.id
