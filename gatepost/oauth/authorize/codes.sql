-- name: insert_code
INSERT INTO codes (account, id, client, consent, request, expires_at)
  VALUES (:account, :id, :client, :consent, :request, :expires_at)
-- name: spend_code
UPDATE codes SET spent_at = :at
  WHERE account = :account AND id = :id AND spent_at IS NULL RETURNING 1
-- name: code
SELECT client, consent, request, expires_at, spent_at FROM codes WHERE account = :account AND id = :id
