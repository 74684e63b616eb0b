-- name: list_issuers
SELECT document FROM issuers WHERE account = :account ORDER BY name
-- name: put_issuer
INSERT INTO issuers (account, name, document) VALUES (:account, :name, :document)
  ON CONFLICT (account, name) DO NOTHING RETURNING 1
-- name: delete_issuer
DELETE FROM issuers WHERE account = :account AND name = :name RETURNING 1
