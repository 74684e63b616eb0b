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
