-- name: ended_deliveries
SELECT account, id, endpoint, subscription, event, event_type, origin, status, ended_at, ended_reason, last_code,
    last_failure, keep_days
  FROM deliveries WHERE account = :account AND id > :after AND id < :before AND status <> 'pending'
  ORDER BY id LIMIT :limit
-- name: count_unfinished_between
SELECT count(*) FROM deliveries WHERE account = :account AND id > :after AND id < :before AND status = 'pending'
-- name: count_entries_between
SELECT count(*) FROM entries WHERE account = :account AND id > :after AND id < :before
