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
