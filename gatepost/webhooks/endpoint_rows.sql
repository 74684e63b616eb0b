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
SELECT e.account, e.id FROM endpoints e WHERE e.status <> 'active' AND (e.account, e.id) > (:account, :after) /*reachable: e.account */
  AND EXISTS (SELECT 1 FROM queue q WHERE q.account = e.account AND q.endpoint = e.id /*reachable: q.account */)
  ORDER BY e.account, e.id LIMIT :limit
