-- name: health
SELECT failures, failing_since, not_before FROM health WHERE account = :account AND endpoint = :endpoint
-- name: recover
/*given: account bytea, endpoint bytea */
UPDATE health SET failures = 0, failing_since = NULL /*postgres: FROM given */
  WHERE /*sqlite: (account, endpoint) IN (SELECT account, endpoint FROM given) */
  /*postgres: health.account = given.account AND health.endpoint = given.endpoint */ AND failures > 0
-- name: delete_health
DELETE FROM health WHERE account = :account AND endpoint = :endpoint
-- name: lift_retry_after
UPDATE health SET not_before = :now WHERE account = :account AND endpoint = :endpoint AND not_before > :now RETURNING 1
-- name: plan_without_retry_after
UPDATE queue SET planned_at = due WHERE account = :account AND endpoint = :endpoint AND lane = 1 AND planned_at > due
-- name: retry_afters
SELECT account, endpoint, not_before FROM health WHERE not_before > :now /*reachable: account */
-- name: recovered_health
SELECT 1 FROM health WHERE failures = 0 AND not_before <= :before /*reachable: account */ LIMIT 1
-- name: delete_recovered_health
DELETE FROM health WHERE failures = 0 AND not_before <= :before /*reachable: account */
-- name: worsen
INSERT INTO health (account, endpoint, failures, failing_since, not_before)
  VALUES (:account, :endpoint, :failures, :failing_since, :not_before)
  ON CONFLICT (account, endpoint) DO UPDATE SET failures = health.failures + excluded.failures,
    failing_since = coalesce(health.failing_since, excluded.failing_since),
    not_before = /*sqlite: max */ /*postgres: greatest */ (health.not_before, excluded.not_before)
  RETURNING failures, failing_since, not_before
