-- name: count_queue
SELECT account, endpoint, count(*), count(worker) FROM (SELECT account, endpoint, worker FROM queue WHERE true /*reachable: account */ LIMIT :limit) AS counted
  GROUP BY account, endpoint
-- name: lanes
/*sqlite: SELECT account, endpoint, lane, due FROM queue WHERE (account, endpoint, lane) >= (:account, :endpoint, :lane + 1) AND (worker IS NULL OR lease <= :now) ORDER BY account, endpoint, lane, due LIMIT min(:limit, 1) */
/*postgres: WITH RECURSIVE found AS ((SELECT account, endpoint, lane, due FROM queue WHERE (account, endpoint, lane) > (:account, :endpoint, :lane) AND (worker IS NULL OR lease <= :now) ORDER BY account, endpoint, lane, due LIMIT 1) UNION ALL SELECT next.account, next.endpoint, next.lane, next.due FROM found CROSS JOIN LATERAL (SELECT account, endpoint, lane, due FROM queue WHERE (account, endpoint, lane) > (found.account, found.endpoint, found.lane) AND (worker IS NULL OR lease <= :now) ORDER BY account, endpoint, lane, due LIMIT 1) next) SELECT account, endpoint, lane, due FROM found LIMIT :limit */
-- name: lanes (citus)
SELECT e.account, e.id, l.lane, q.due FROM endpoints e CROSS JOIN (VALUES (0), (1)) l (lane)
    JOIN queue q ON q.account = e.account AND q.id = (SELECT f.id FROM queue f
      WHERE f.account = e.account AND f.endpoint = e.id AND f.lane = l.lane AND (f.worker IS NULL OR f.lease <= :now)
        /*reachable: f.account */
      ORDER BY f.due, f.id LIMIT 1)
  WHERE (e.account, e.id) >= (:account, :endpoint) AND (e.account, e.id, l.lane) > (:account, :endpoint, :lane)
    /*reachable: e.account */ /*reachable: q.account */
  ORDER BY e.account, e.id, l.lane LIMIT :limit
-- name: next_due
/*each: account bytea, endpoint bytea, lane integer, now bigint, after_due bigint, after_id bytea */
SELECT due, (SELECT not_before FROM health WHERE account = :account AND endpoint = :endpoint) AS not_before FROM queue
  WHERE account = :account AND endpoint = :endpoint AND lane = :lane AND (due, id) > (:after_due, :after_id)
    AND (worker IS NULL OR lease <= :now) ORDER BY due LIMIT 1
-- name: due
/*each: account bytea, endpoint bytea, lane integer, now bigint, after_due bigint, after_id bytea, most integer */
SELECT q.account, q.id, q.endpoint, q.event, q.lane, q.due, q.planned_at, q.because, q.number, q.used, q.interrupted,
    q.worker, q.opened, q.lease,
    (SELECT not_before FROM health WHERE account = :account AND endpoint = :endpoint) AS not_before,
    /*sqlite: e.type, e.at, e.data */ /*postgres: NULL::text AS type, NULL::bigint AS at, NULL::text AS data */
  FROM queue q /*sqlite: LEFT JOIN entries e ON e.account = q.account AND e.id = q.event */
  WHERE q.account = :account AND q.endpoint = :endpoint AND q.lane = :lane AND q.due <= :now
    AND (q.due, q.id) > (:after_due, :after_id) AND (q.worker IS NULL OR q.lease <= :now)
    AND NOT EXISTS (SELECT 1 FROM health WHERE account = :account AND endpoint = :endpoint AND not_before > :now)
  ORDER BY q.due, q.id LIMIT :most /*postgres: FOR UPDATE OF q SKIP LOCKED */
-- name: claim
/*given: account bytea, id bytea, lease bigint, worker bytea, opened text */
UPDATE queue SET lease = given.lease, number = queue.number + 1, worker = given.worker, opened = given.opened
  FROM given WHERE queue.account = given.account AND queue.id = given.id AND /*python: MAY_BE_CLAIMED */
-- name: end_queued
/*given: account bytea, id bytea, number integer */
DELETE FROM queue /*postgres: USING given */ WHERE
  /*sqlite: (account, id, number) IN (SELECT account, id, number FROM given) */
  /*postgres: queue.account = given.account AND queue.id = given.id AND queue.number = given.number */
  AND /*python: MAY_END_AFTER_ATTEMPT */
  RETURNING queue.account, queue.id
-- name: drop_queued
/*given: account bytea, id bytea, number integer */
DELETE FROM queue /*postgres: USING given */ WHERE
  /*sqlite: (account, id, number) IN (SELECT account, id, number FROM given) */
  /*postgres: queue.account = given.account AND queue.id = given.id AND queue.number = given.number */
  AND /*python: MAY_END */
  RETURNING queue.account, queue.id
-- name: set_due
UPDATE queue SET due = :due, planned_at = :due, because = 'operator'
  WHERE account = :account AND id = :id AND number = :number AND worker IS NULL RETURNING id
-- name: requeue
/*given: account bytea, id bytea, number integer, due bigint, planned_at bigint, because text, used integer, interrupted integer */
UPDATE queue SET lane = 1, due = given.due, planned_at = given.planned_at, because = given.because, used = given.used,
    interrupted = given.interrupted, worker = NULL, opened = NULL, lease = NULL
  FROM given WHERE queue.account = given.account AND queue.id = given.id AND queue.number = given.number
    AND /*python: MAY_BE_REQUEUED */
  RETURNING queue.account, queue.id
-- name: open_attempts
SELECT account, id, endpoint, event, lane, due, planned_at, because, number, used, interrupted, worker, opened, lease
  FROM queue WHERE worker = :worker /*reachable: account */ ORDER BY account, id LIMIT :limit
-- name: queued_given
/*given: account bytea, id bytea */
SELECT q.account, q.id, q.endpoint, q.event, q.lane, q.due, q.planned_at, q.because, q.number, q.used, q.interrupted,
    q.worker, q.opened, q.lease
  FROM given JOIN queue q ON q.account = given.account AND q.id = given.id
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
-- name: count_waiting_of_endpoint
SELECT count(*) FROM (SELECT 1 FROM queue WHERE account = :account AND endpoint = :endpoint AND worker IS NULL
    LIMIT :limit) counted
-- name: oldest_queued
SELECT id FROM queue WHERE account = :account ORDER BY id LIMIT 1
