-- name: count_deliveries_given
/*given: account bytea, event bytea, since bytea, until bytea */
SELECT event, (SELECT count(*) FROM (SELECT d.origin FROM deliveries d /*sqlite: INDEXED BY deliveries_by_event */
    WHERE d.account = given.account AND (d.event, d.id) >= (given.event, given.since)
      AND (d.event, d.id) < (given.event, given.until) /*in days: d.id */ ORDER BY d.event, d.id) AS found
  WHERE origin = 'event') FROM given
-- name: delivered_given
/*given: account bytea, event bytea, since bytea, until bytea */
SELECT d.event, d.subscription FROM given JOIN deliveries d /*sqlite: INDEXED BY deliveries_by_event */
    ON d.account = given.account AND d.event = given.event AND d.id >= given.since AND d.id < given.until
  WHERE d.origin = 'event'
-- name: insert_deliveries
/*given: account bytea, id bytea, endpoint bytea, subscription bytea, event bytea, event_type text, origin text, status text, ended_at bigint, ended_reason text, last_code integer, last_failure text, keep_days integer */
INSERT INTO deliveries (account, id, endpoint, subscription, event, event_type, origin, status, ended_at, ended_reason,
    last_code, last_failure, keep_days)
  SELECT account, id, endpoint, subscription, event, event_type, origin, status, ended_at, ended_reason,
    last_code, last_failure, keep_days FROM given
-- name: insert_queue
/*given: account bytea, id bytea, endpoint bytea, event bytea, lane integer, due bigint, planned_at bigint, because text, number integer, used integer, interrupted integer, worker bytea, opened text, lease bigint */
INSERT INTO queue (account, id, endpoint, event, lane, due, planned_at, because, number, used, interrupted, worker, opened,
    lease)
  SELECT account, id, endpoint, event, lane, due, planned_at, because, number, used, interrupted, worker, opened, lease
  FROM given
-- name: write_records
/*given: account bytea, id bytea, status text, ended_at bigint, ended_reason text, last_code integer, last_failure text */
UPDATE deliveries SET status = given.status, ended_at = given.ended_at, ended_reason = given.ended_reason,
    last_code = given.last_code, last_failure = given.last_failure,
    bad_status = CASE WHEN given.status IN ('failed', 'cancelled') THEN given.status END,
    bad_code = CASE WHEN given.last_code >= 300 THEN given.last_code END
  FROM given WHERE deliveries.account = given.account AND deliveries.id = given.id
    /*in days: deliveries.id */ AND /*python: MAY_MOVE */
-- name: write_attempts
/*given: account bytea, delivery bytea, number integer, outcome text, document text */
INSERT INTO attempts (account, delivery, number, outcome, document)
  SELECT account, delivery, number, outcome, document FROM given WHERE true
  ON CONFLICT (account, delivery, number) DO UPDATE SET outcome = excluded.outcome, document = excluded.document
-- name: delivery
SELECT account, id, endpoint, subscription, event, event_type, origin, status, ended_at, ended_reason, last_code,
    last_failure, keep_days
  FROM deliveries WHERE account = :account AND id = :id
-- name: deliveries_given
/*given: account bytea, id bytea */
SELECT d.account, d.id, d.endpoint, d.subscription, d.event, d.event_type, d.origin, d.status, d.ended_at,
    d.ended_reason, d.last_code, d.last_failure, d.keep_days
  FROM given JOIN deliveries d ON d.account = given.account AND d.id = given.id /*in days: d.id */
-- name: attempts_given
/*given: account bytea, id bytea */
SELECT a.account, a.delivery, a.number, a.outcome, a.document
  FROM given JOIN attempts a ON a.account = given.account AND a.delivery = given.id /*in days: a.delivery */
  ORDER BY a.delivery, a.number
-- name: deliveries_of_event
SELECT id FROM deliveries WHERE account = :account AND event = :event AND origin = 'event' ORDER BY id LIMIT :limit
-- name: has_failed_delivery
SELECT 1 FROM deliveries /*sqlite: INDEXED BY deliveries_by_event */ WHERE account = :account AND event = :event
    AND subscription = :subscription AND status = 'failed' LIMIT 1
-- name: prunable_deliveries
SELECT id, keep_days, status FROM /*sqlite: deliveries */ /*postgres: deliveries_pruned_by_row */
  WHERE account = :account AND id > :after AND id < :before ORDER BY id LIMIT :limit
-- name: deliveries_unqueued
SELECT d.id, d.status = 'pending'
    AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.account = :account AND q.id = d.id)
  FROM deliveries d WHERE d.account = :account AND d.id > :after ORDER BY d.id LIMIT :limit
-- name: delete_deliveries
/*given: account bytea, id bytea */
DELETE FROM deliveries /*postgres: USING given */ WHERE /*sqlite: (account, id) IN (SELECT account, id FROM given) */
  /*postgres: deliveries.account = given.account AND deliveries.id = given.id */ /*in days: deliveries.id */
-- name: delete_attempts
/*given: account bytea, id bytea */
DELETE FROM attempts /*postgres: USING given */ WHERE /*sqlite: (account, delivery) IN (SELECT account, id FROM given) */
  /*postgres: attempts.account = given.account AND attempts.delivery = given.id */ /*in days: attempts.delivery */
-- name: deliveries_pruned_up_to
SELECT id FROM delivery_prunings WHERE account = :account AND keep_days = :keep_days
-- name: put_deliveries_pruned_up_to
INSERT INTO delivery_prunings (account, keep_days, id) VALUES (:account, :keep_days, :id)
  ON CONFLICT (account, keep_days) DO UPDATE SET id = excluded.id WHERE delivery_prunings.id = :previous
