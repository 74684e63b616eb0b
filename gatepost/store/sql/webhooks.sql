-- name: insert_endpoint
INSERT INTO endpoints (account, id, status, document) VALUES (:account, :id, :status, :document)
-- name: update_endpoint
UPDATE endpoints SET status = :status, document = :document WHERE account = :account AND id = :id
-- name: endpoint_by_id
SELECT document FROM endpoints WHERE account = :account AND id = :id
-- name: list_endpoints
SELECT document FROM endpoints WHERE account = :account AND id > :after ORDER BY id LIMIT :limit
-- name: count_endpoints
SELECT count(*) FROM endpoints WHERE account = :account AND status <> 'removed'
-- name: endpoints_not_active
SELECT e.account, e.id FROM endpoints e WHERE e.status <> 'active' AND (e.account, e.id) > (:account, :after)
  AND EXISTS (SELECT 1 FROM queue q WHERE q.account = e.account AND q.endpoint = e.id)
  ORDER BY e.account, e.id LIMIT :limit
-- name: insert_subscription
INSERT INTO subscriptions (account, id, endpoint, status, document) VALUES (:account, :id, :endpoint, :status, :document)
-- name: update_subscription
UPDATE subscriptions SET status = :status, document = :document WHERE account = :account AND id = :id
-- name: subscription_by_id
SELECT document FROM subscriptions WHERE account = :account AND id = :id
-- name: list_subscriptions
SELECT document FROM subscriptions WHERE account = :account AND id > :after ORDER BY id LIMIT :limit
-- name: subscriptions_of_endpoint
SELECT document FROM subscriptions WHERE account = :account AND endpoint = :endpoint AND status <> 'removed' ORDER BY id
-- name: matching_subscriptions
SELECT s.document FROM subscriptions s JOIN endpoints e ON e.account = s.account AND e.id = s.endpoint
  WHERE s.account = :account AND s.status = 'active' AND e.status <> 'removed' ORDER BY s.id
-- name: count_subscriptions
SELECT count(*) FROM subscriptions WHERE account = :account AND status <> 'removed'
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
UPDATE health SET not_before = 0 WHERE account = :account AND endpoint = :endpoint AND not_before > :now RETURNING 1
-- name: plan_without_retry_after
UPDATE queue SET planned_at = due WHERE account = :account AND endpoint = :endpoint AND lane = 1 AND planned_at > due
-- name: retry_afters
SELECT account, endpoint, not_before FROM health WHERE not_before > :now
-- name: recovered_health
SELECT 1 FROM health WHERE failures = 0 AND not_before <= :before LIMIT 1
-- name: delete_recovered_health
DELETE FROM health WHERE failures = 0 AND not_before <= :before
-- name: worsen
INSERT INTO health (account, endpoint, failures, failing_since, not_before)
  VALUES (:account, :endpoint, :failures, :failing_since, :not_before)
  ON CONFLICT (account, endpoint) DO UPDATE SET failures = health.failures + excluded.failures,
    failing_since = coalesce(health.failing_since, excluded.failing_since),
    not_before = /*sqlite: max */ /*postgres: greatest */ (health.not_before, excluded.not_before)
  RETURNING failures, failing_since, not_before
-- name: insert_replay
INSERT INTO replays (account, id, subscription, state, position, examined, made, document)
  VALUES (:account, :id, :subscription, 'running', :position, 0, 0, :document)
-- name: running_replays
SELECT account, id FROM replays WHERE state = 'running' ORDER BY account, id LIMIT 100
-- name: lock_replay
SELECT account, id, subscription, state, position, examined, made, document FROM replays
  WHERE account = :account AND id = :id AND state = 'running' /*postgres: FOR UPDATE SKIP LOCKED */
-- name: last_replay
SELECT account, id, subscription, state, position, examined, made, document FROM replays
  WHERE account = :account AND subscription = :subscription ORDER BY id DESC LIMIT 1
-- name: move_replay
UPDATE replays SET state = :state, position = :position, examined = :examined, made = :made
  WHERE account = :account AND id = :id
-- name: insert_published
INSERT INTO published (account, name, event, body) VALUES (:account, :name, :event, :body)
  ON CONFLICT DO NOTHING RETURNING event
-- name: published
SELECT event, body FROM published WHERE account = :account AND name = :name
-- name: forget_published
/*given: account bytea, event bytea */
DELETE FROM published /*postgres: USING given */ WHERE /*sqlite: (account, event) IN (SELECT account, event FROM given) */
  /*postgres: published.account = given.account AND published.event = given.event */
-- name: outbox
/*postgres: SELECT seq, account, type, data::text, id FROM gatepost_outbox WHERE refused IS NULL ORDER BY seq LIMIT :limit FOR UPDATE SKIP LOCKED */
/*sqlite: SELECT 1 WHERE :limit < 0 */
-- name: leave_outbox
/*given: seq bigint */
/*postgres: DELETE FROM gatepost_outbox USING given WHERE gatepost_outbox.seq = given.seq */
/*sqlite: SELECT 1 FROM given WHERE seq < 0 */
-- name: refuse_outbox
/*given: seq bigint, refused text */
/*postgres: UPDATE gatepost_outbox SET refused = given.refused FROM given WHERE gatepost_outbox.seq = given.seq */
/*sqlite: SELECT 1 FROM given WHERE seq < 0 */
