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
-- name: tally
/*given: account bytea, since bigint, span integer, slot integer, what text, count bigint */
INSERT INTO tallies (account, since, span, slot, what, count)
  SELECT account, since, span, slot, what, count FROM given WHERE true
  ON CONFLICT (account, since, span, slot, what) DO UPDATE SET count = tallies.count + excluded.count
-- name: tallied
SELECT since, what, sum(count) FROM tallies WHERE account = :account AND since >= :since AND since < :until
  GROUP BY since, what
-- name: old_minutes
DELETE FROM tallies WHERE (account, since, span, slot, what) IN (
    SELECT account, since, span, slot, what FROM tallies WHERE span = 60 AND since < :before ORDER BY since LIMIT :limit)
  RETURNING account, since, what, count
-- name: forget_tallies
DELETE FROM tallies WHERE (account, since, span, slot, what) IN (
    SELECT account, since, span, slot, what FROM tallies WHERE span = 3600 AND since < :before ORDER BY since LIMIT :limit)
  RETURNING 1
-- name: lanes
/*sqlite: SELECT account, endpoint, lane, due FROM queue WHERE (account, endpoint, lane) >= (:account, :endpoint, :lane + 1) AND (worker IS NULL OR lease <= :now) ORDER BY account, endpoint, lane, due LIMIT min(:limit, 1) */
/*postgres: WITH RECURSIVE found AS ((SELECT account, endpoint, lane, due FROM queue WHERE (account, endpoint, lane) > (:account, :endpoint, :lane) AND (worker IS NULL OR lease <= :now) ORDER BY account, endpoint, lane, due LIMIT 1) UNION ALL SELECT next.account, next.endpoint, next.lane, next.due FROM found CROSS JOIN LATERAL (SELECT account, endpoint, lane, due FROM queue WHERE (account, endpoint, lane) > (found.account, found.endpoint, found.lane) AND (worker IS NULL OR lease <= :now) ORDER BY account, endpoint, lane, due LIMIT 1) next) SELECT account, endpoint, lane, due FROM found LIMIT :limit */
-- name: next_due
/*each: account bytea, endpoint bytea, lane integer, now bigint */
SELECT due, (SELECT not_before FROM health WHERE account = :account AND endpoint = :endpoint) AS not_before FROM queue
  WHERE account = :account AND endpoint = :endpoint AND lane = :lane
    AND (worker IS NULL OR lease <= :now) ORDER BY due LIMIT 1
-- name: due
/*each: account bytea, endpoint bytea, lane integer, now bigint, after_due bigint, after_id bytea, most integer */
SELECT q.account, q.id, q.endpoint, q.event, q.lane, q.due, q.planned_at, q.because, q.number, q.used, q.interrupted,
    q.worker, q.opened, q.lease, e.type, e.at, e.data,
    (SELECT not_before FROM health WHERE account = :account AND endpoint = :endpoint) AS not_before
  FROM queue q JOIN entries e ON e.account = q.account AND e.id = q.event
  WHERE q.account = :account AND q.endpoint = :endpoint AND q.lane = :lane AND q.due <= :now
    AND (q.due, q.id) > (:after_due, :after_id) AND (q.worker IS NULL OR q.lease <= :now)
    AND NOT EXISTS (SELECT 1 FROM health WHERE account = :account AND endpoint = :endpoint AND not_before > :now)
  ORDER BY q.due, q.id LIMIT :most /*postgres: FOR UPDATE OF q SKIP LOCKED */
-- name: claim
/*given: account bytea, id bytea, lease bigint, worker bytea, opened text */
UPDATE queue SET lease = given.lease, number = queue.number + 1, worker = given.worker, opened = given.opened
  FROM given WHERE queue.account = given.account AND queue.id = given.id
-- name: end_queued
/*given: account bytea, id bytea, number integer */
DELETE FROM queue /*postgres: USING given */ WHERE
  /*sqlite: (account, id, number) IN (SELECT account, id, number FROM given) */
  /*postgres: queue.account = given.account AND queue.id = given.id AND queue.number = given.number */
  AND (worker IS NOT NULL OR because = 'interrupted')
  RETURNING queue.account, queue.id
-- name: drop_queued
/*given: account bytea, id bytea, number integer */
DELETE FROM queue /*postgres: USING given */ WHERE
  /*sqlite: (account, id, number) IN (SELECT account, id, number FROM given) */
  /*postgres: queue.account = given.account AND queue.id = given.id AND queue.number = given.number */
  RETURNING queue.account, queue.id
-- name: hurry
UPDATE queue SET due = :due, planned_at = :due, because = 'operator'
  WHERE account = :account AND id = :id AND number = :number AND worker IS NULL RETURNING id
-- name: requeue
/*given: account bytea, id bytea, number integer, due bigint, planned_at bigint, because text, used integer, interrupted integer */
UPDATE queue SET lane = 1, due = given.due, planned_at = given.planned_at, because = given.because, used = given.used,
    interrupted = given.interrupted, worker = NULL, opened = NULL, lease = NULL
  FROM given WHERE queue.account = given.account AND queue.id = given.id AND queue.number = given.number
    AND (queue.worker IS NOT NULL OR queue.because = 'interrupted')
  RETURNING queue.account, queue.id
-- name: write_records
/*given: account bytea, id bytea, status text, ended_at bigint, ended_reason text, last_code integer, last_failure text */
UPDATE deliveries SET status = given.status, ended_at = given.ended_at, ended_reason = given.ended_reason,
    last_code = given.last_code, last_failure = given.last_failure,
    bad_status = CASE WHEN given.status IN ('failed', 'cancelled') THEN given.status END,
    bad_code = CASE WHEN given.last_code >= 300 THEN given.last_code END
  FROM given WHERE deliveries.account = given.account AND deliveries.id = given.id
-- name: write_attempts
/*given: account bytea, delivery bytea, number integer, outcome text, document text */
INSERT INTO attempts (account, delivery, number, outcome, document)
  SELECT account, delivery, number, outcome, document FROM given WHERE true
  ON CONFLICT (account, delivery, number) DO UPDATE SET outcome = excluded.outcome, document = excluded.document
-- name: open_attempts
SELECT account, id, endpoint, event, lane, due, planned_at, because, number, used, interrupted, worker, opened, lease
  FROM queue WHERE worker = :worker ORDER BY account, id LIMIT :limit
-- name: beat
INSERT INTO workers (id, place, beat_at) VALUES (:id, :place, :at) ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at
-- name: workers
SELECT id, place, beat_at FROM workers ORDER BY id
-- name: forget_worker
DELETE FROM workers WHERE id = :id AND beat_at = :beat_at
-- name: delivery
SELECT account, id, endpoint, subscription, event, event_type, origin, status, ended_at, ended_reason, last_code,
    last_failure, keep_days
  FROM deliveries WHERE account = :account AND id = :id
-- name: deliveries_given
/*given: account bytea, id bytea */
SELECT d.account, d.id, d.endpoint, d.subscription, d.event, d.event_type, d.origin, d.status, d.ended_at,
    d.ended_reason, d.last_code, d.last_failure, d.keep_days
  FROM given JOIN deliveries d ON d.account = given.account AND d.id = given.id
-- name: queued_given
/*given: account bytea, id bytea */
SELECT q.account, q.id, q.endpoint, q.event, q.lane, q.due, q.planned_at, q.because, q.number, q.used, q.interrupted,
    q.worker, q.opened, q.lease
  FROM given JOIN queue q ON q.account = given.account AND q.id = given.id
-- name: attempts_given
/*given: account bytea, id bytea */
SELECT a.account, a.delivery, a.number, a.outcome, a.document
  FROM given JOIN attempts a ON a.account = given.account AND a.delivery = given.id ORDER BY a.delivery, a.number
-- name: entries_given
/*given: account bytea, id bytea */
SELECT e.account, e.id, e.type, e.at, e.actor, e.subject, e.data, e.data_hash, e.matched, e.keep_days, e.request, e.source
  FROM given JOIN entries e ON e.account = given.account AND e.id = given.id
-- name: deliveries_of_event
SELECT id FROM deliveries WHERE account = :account AND event = :event AND origin = 'event' ORDER BY id LIMIT :limit
-- name: has_failed_delivery
SELECT 1 FROM deliveries /*sqlite: INDEXED BY deliveries_by_event */ WHERE account = :account AND event = :event
    AND subscription = :subscription AND status = 'failed' LIMIT 1
-- name: lock_queued
SELECT account, id, endpoint, event, lane, due, planned_at, because, number, used, interrupted, worker, opened, lease
  FROM queue WHERE account = :account AND id = :id /*postgres: FOR UPDATE */
-- name: queued_of_endpoint
SELECT account, id, endpoint, event, lane, due, planned_at, because, number, used, interrupted, worker, opened, lease
  FROM queue /*sqlite: INDEXED BY queue_by_endpoint */ WHERE account = :account AND endpoint = :endpoint AND id < :before
    AND (worker IS NULL OR lease <= :now)
  ORDER BY lane, due, id LIMIT :limit /*postgres: FOR UPDATE SKIP LOCKED */
-- name: waits_for_endpoint
SELECT 1 FROM queue WHERE account = :account AND endpoint = :endpoint AND id < :before LIMIT 1
-- name: count_queued_of_endpoint
SELECT count(*) FROM (SELECT 1 FROM queue WHERE account = :account AND endpoint = :endpoint LIMIT :limit) counted
-- name: oldest_queued
SELECT id FROM queue WHERE account = :account ORDER BY id LIMIT 1
-- name: prunable_deliveries
SELECT id, keep_days, status FROM deliveries WHERE account = :account AND id > :after AND id < :before ORDER BY id LIMIT :limit
-- name: delete_deliveries
/*given: account bytea, id bytea */
DELETE FROM deliveries /*postgres: USING given */ WHERE /*sqlite: (account, id) IN (SELECT account, id FROM given) */
  /*postgres: deliveries.account = given.account AND deliveries.id = given.id */
-- name: delete_attempts
/*given: account bytea, id bytea */
DELETE FROM attempts /*postgres: USING given */ WHERE /*sqlite: (account, delivery) IN (SELECT account, id FROM given) */
  /*postgres: attempts.account = given.account AND attempts.delivery = given.id */
-- name: deliveries_pruned_up_to
SELECT id FROM delivery_prunings WHERE account = :account AND keep_days = :keep_days
-- name: put_deliveries_pruned_up_to
INSERT INTO delivery_prunings (account, keep_days, id) VALUES (:account, :keep_days, :id)
  ON CONFLICT (account, keep_days) DO UPDATE SET id = excluded.id WHERE delivery_prunings.id < excluded.id
