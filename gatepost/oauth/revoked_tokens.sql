-- name: revoke_token
INSERT INTO revoked (account, id, expires_at) VALUES (:account, :id, :expires_at) ON CONFLICT DO NOTHING RETURNING 1
-- name: is_revoked
SELECT 1 FROM revoked WHERE account = :account AND id = :id
-- name: revoked_among
/*given: account bytea, id bytea */
SELECT r.id FROM given JOIN revoked AS r ON r.account = given.account AND r.id = given.id
