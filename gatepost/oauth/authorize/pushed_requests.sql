-- name: insert_pushed
INSERT INTO pushed (account, id, client, source, request, expires_at)
  VALUES (:account, :id, :client, :source, :request, :expires_at)
-- name: evict_pushed
DELETE FROM pushed WHERE account = :account AND (account, id) IN (
  SELECT account, id FROM pushed WHERE account = :account AND client = :client AND source = :source
    ORDER BY expires_at DESC, id DESC LIMIT 200 OFFSET :keep) RETURNING 1
-- name: pushed
SELECT request FROM pushed WHERE account = :account AND id = :id AND client = :client AND expires_at > :at
-- name: delete_pushed
DELETE FROM pushed WHERE account = :account AND id = :id RETURNING 1
