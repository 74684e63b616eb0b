-- name: insert_client
INSERT INTO clients (account, id, document, id_token_claims) VALUES (:account, :id, :document, :id_token_claims)
-- name: update_client
UPDATE clients SET document = :document, id_token_claims = :id_token_claims WHERE account = :account AND id = :id
-- name: client_by_id
SELECT document, id_token_claims FROM clients WHERE id = :id
-- name: list_clients
SELECT document, id_token_claims FROM clients WHERE account = :account AND id > :after ORDER BY id LIMIT :limit
-- name: count_clients
SELECT count(*) FROM clients WHERE account = :account
-- name: use_secret
INSERT INTO secret_uses (account, id, last_used_at) VALUES (:account, :id, :at)
  ON CONFLICT (account, id) DO UPDATE SET last_used_at = excluded.last_used_at
  WHERE secret_uses.last_used_at < excluded.last_used_at
-- name: secret_used
SELECT last_used_at FROM secret_uses WHERE account = :account AND id = :id
-- name: use_assertion
INSERT INTO assertions (client, id, expires_at) VALUES (:client, :id, :expires_at) ON CONFLICT DO NOTHING RETURNING 1
-- name: assertion_used
SELECT 1 FROM assertions WHERE client = :client AND id = :id
-- name: forget_assertions
DELETE FROM assertions WHERE (client, id) IN
  (SELECT client, id FROM assertions WHERE expires_at < :before ORDER BY expires_at LIMIT 200) RETURNING 1
