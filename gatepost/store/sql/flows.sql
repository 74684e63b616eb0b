-- name: list_issuers
SELECT document FROM issuers WHERE account = :account ORDER BY name
-- name: put_issuer
INSERT INTO issuers (account, name, document) VALUES (:account, :name, :document)
  ON CONFLICT (account, name) DO NOTHING RETURNING 1
-- name: delete_issuer
DELETE FROM issuers WHERE account = :account AND name = :name RETURNING 1
-- name: insert_pushed
INSERT INTO pushed (account, id, client, source, request, expires_at)
  VALUES (:account, :id, :client, :source, :request, :expires_at)
-- name: evict_pushed
DELETE FROM pushed WHERE (account, id) IN (
  SELECT account, id FROM pushed WHERE account = :account AND client = :client AND source = :source
    ORDER BY expires_at DESC, id DESC LIMIT 200 OFFSET :keep) RETURNING 1
-- name: pushed
SELECT request FROM pushed WHERE account = :account AND id = :id AND client = :client AND expires_at > :at
-- name: delete_pushed
DELETE FROM pushed WHERE account = :account AND id = :id RETURNING 1
-- name: forget_pushed
DELETE FROM pushed WHERE (account, id) IN
  (SELECT account, id FROM pushed WHERE expires_at < :before ORDER BY expires_at LIMIT 200) RETURNING 1
-- name: insert_interaction
INSERT INTO interactions (account, id, client, browser, source, first_visit, pushed, request, expires_at)
  VALUES (:account, :id, :client, :browser, :source, :first_visit, :pushed, :request, :expires_at)
-- name: evict_interactions_of_browser
DELETE FROM interactions WHERE done_at IS NULL AND (account, id) IN (
  SELECT account, id FROM interactions WHERE account = :account AND browser = :browser AND done_at IS NULL
    ORDER BY expires_at DESC, id DESC LIMIT 200 OFFSET :keep) RETURNING 1
-- name: evict_interactions
DELETE FROM interactions WHERE done_at IS NULL AND (account, id) IN (
  SELECT account, id FROM interactions WHERE account = :account AND client = :client AND source = :source
    AND first_visit = :first_visit AND done_at IS NULL
    ORDER BY expires_at DESC, id DESC LIMIT 200 OFFSET :keep) RETURNING 1
-- name: interaction
SELECT client, browser, pushed, request, expires_at, done_at FROM interactions WHERE account = :account AND id = :id
-- name: end_interaction
UPDATE interactions SET done_at = :at WHERE account = :account AND id = :id AND done_at IS NULL RETURNING 1
-- name: forget_interactions
DELETE FROM interactions WHERE (account, id) IN
  (SELECT account, id FROM interactions WHERE expires_at < :before ORDER BY expires_at LIMIT 200) RETURNING 1
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
-- name: forget_consents
DELETE FROM consents WHERE (account, id) IN
  (SELECT account, id FROM consents WHERE expires_at < :before ORDER BY expires_at LIMIT 200) RETURNING 1
-- name: insert_code
INSERT INTO codes (account, id, client, consent, request, expires_at)
  VALUES (:account, :id, :client, :consent, :request, :expires_at)
-- name: code
SELECT client, consent, request, expires_at, spent_at FROM codes WHERE account = :account AND id = :id
-- name: spend_code
UPDATE codes SET spent_at = :at
  WHERE account = :account AND id = :id AND spent_at IS NULL RETURNING 1
-- name: forget_codes
DELETE FROM codes WHERE (account, id) IN
  (SELECT account, id FROM codes WHERE expires_at < :before ORDER BY expires_at LIMIT 200) RETURNING 1
-- name: insert_family
INSERT INTO families (account, id, client, consent, number, leaf, thumbprint, rotated_at, idle_ends_at, ends_at)
  VALUES (:account, :id, :client, :consent, :number, :leaf, :thumbprint, :rotated_at, :idle_ends_at, :ends_at)
-- name: family
SELECT id, client, consent, number, leaf, thumbprint, rotated_at, idle_ends_at, ends_at, ended_at, ended_reason
  FROM families WHERE account = :account AND id = :id
-- name: families_and_consents
/*given: account bytea, id bytea */
SELECT f.account, f.id, f.client, f.consent, f.number, f.leaf, f.thumbprint, f.rotated_at, f.idle_ends_at, f.ends_at, f.ended_at,
    f.ended_reason, c.id, c.client, c.said, c.given_at, c.expires_at, c.ended_at, c.ended_reason
  FROM given JOIN families AS f ON f.account = given.account AND f.id = given.id
    JOIN consents AS c ON c.account = f.account AND c.id = f.consent
-- name: rotate_families
/*given: account bytea, id bytea, number integer, leaf bytea, thumbprint text, rotated_at bigint, idle_ends_at bigint */
UPDATE families AS f SET number = f.number + 1, leaf = given.leaf, thumbprint = given.thumbprint,
    rotated_at = given.rotated_at, idle_ends_at = given.idle_ends_at
  FROM given WHERE f.account = given.account AND f.id = given.id AND f.number = given.number AND f.ended_at IS NULL
  RETURNING 1
-- name: keep_family
UPDATE families SET idle_ends_at = :idle_ends_at
  WHERE account = :account AND id = :id AND number = :number AND ended_at IS NULL RETURNING 1
-- name: families_of_consent
SELECT id FROM families WHERE account = :account AND consent = :consent AND ended_at IS NULL ORDER BY id
-- name: end_family
UPDATE families SET ended_at = :at, ended_reason = :reason
  WHERE account = :account AND id = :id AND ended_at IS NULL RETURNING client
-- name: forget_families
DELETE FROM families WHERE (account, id) IN
  (SELECT account, id FROM families WHERE ends_at < :before ORDER BY ends_at LIMIT 200) RETURNING 1
-- name: revoke_token
INSERT INTO revoked (account, id, expires_at) VALUES (:account, :id, :expires_at) ON CONFLICT DO NOTHING RETURNING 1
-- name: is_revoked
SELECT 1 FROM revoked WHERE account = :account AND id = :id
-- name: revoked_among
/*given: account bytea, id bytea */
SELECT r.id FROM given JOIN revoked AS r ON r.account = given.account AND r.id = given.id
-- name: forget_revoked
DELETE FROM revoked WHERE (account, id) IN
  (SELECT account, id FROM revoked WHERE expires_at < :before ORDER BY expires_at LIMIT 200) RETURNING 1
-- name: open_consents
SELECT id FROM consents WHERE account = :account AND id > :after AND given_at < :before AND ended_at IS NULL
  ORDER BY id LIMIT :limit
-- name: forget_every_pushed
DELETE FROM pushed
-- name: forget_every_interaction
DELETE FROM interactions
