-- name: use_assertion
INSERT INTO assertions (client, id, expires_at) VALUES (:client, :id, :expires_at) ON CONFLICT DO NOTHING RETURNING 1
-- name: assertion_used
SELECT 1 FROM assertions WHERE client = :client AND id = :id
