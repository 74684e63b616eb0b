-- name: deliveries_between
SELECT account, id, endpoint, subscription, event, event_type, origin, status, ended_at, ended_reason, last_code,
    last_failure, keep_days
  FROM deliveries WHERE account = :account AND id > :after AND id < :before ORDER BY id LIMIT :limit
-- name: count_unsealed_between
SELECT count(*) FROM unsealed WHERE account = :account AND id > :after AND id < :before
