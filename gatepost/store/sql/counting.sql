-- name: count_queue
SELECT account, endpoint, count(*), count(worker) FROM (SELECT account, endpoint, worker FROM queue LIMIT :limit) AS counted
  GROUP BY account, endpoint
-- name: count_replays
SELECT count(*), coalesce(sum(examined), 0), coalesce(sum(made), 0) FROM replays WHERE state = 'running'
