-- name: insert_consent
INSERT INTO consents (account, id, client, person, said, given_at, expires_at)
  VALUES (:account, :id, :client, :person, :said, :given_at, :expires_at)
-- name: consent
SELECT id, client, said, given_at, expires_at, ended_at, ended_reason FROM consents WHERE account = :account AND id = :id
-- name: list_consents
SELECT id, client, said, given_at, expires_at, ended_at, ended_reason FROM consents
  WHERE account = :account AND id > :after ORDER BY id LIMIT :limit
-- name: consents_of_person
SELECT id FROM consents WHERE account = :account AND person = :person AND ended_at IS NULL ORDER BY id LIMIT :limit
-- name: consents_of_person_and_client
SELECT id FROM consents WHERE account = :account AND person = :person AND client = :client AND ended_at IS NULL
  ORDER BY id LIMIT :limit
-- name: consents_of_client
SELECT id FROM consents WHERE account = :account AND client = :client AND ended_at IS NULL ORDER BY id LIMIT :limit
-- name: end_consent
UPDATE consents SET ended_at = :at, ended_reason = :reason
  WHERE account = :account AND id = :id AND ended_at IS NULL RETURNING client
-- name: active_consents
SELECT id FROM consents WHERE account = :account AND id > :after AND given_at < :before AND ended_at IS NULL
  ORDER BY id LIMIT :limit
