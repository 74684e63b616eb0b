-- name: insert_signing_key
INSERT INTO signing_keys (id, document, private) VALUES (:id, :document, :private)
-- name: update_signing_key
UPDATE signing_keys SET document = :document WHERE id = :id
-- name: wipe_signing_key
UPDATE signing_keys SET document = :document, private = NULL WHERE id = :id
-- name: signing_keys
SELECT document, private FROM signing_keys ORDER BY id
-- name: lock_keys
SELECT value FROM counters WHERE name = 'changes' /*postgres: FOR UPDATE */
